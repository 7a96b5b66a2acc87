"""The sentences below the fields of a model, read from its source when they are needed.

Only the JSON Schema and a few error messages need them. Pydantic's `ConfigDict(use_attribute_docstrings=True)` reads
all of them at import, which then takes a third longer (65 ms of 200).
"""

import ast
import inspect
import sys
import threading
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel

_READING = threading.Lock()


@cache
def sentences(model: type[BaseModel]) -> Mapping[str, str]:
    """What the source says below each field, by the field's name, inherited ones included."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each is not BaseModel:
            with _READING:  # Python 3.11 fails to parse in two threads at the same moment
                found |= _of_module(each.__module__)[each.__qualname__]
    return found


@cache
def _of_module(module: str) -> Mapping[str, Mapping[str, str]]:
    """What the source says below each field of each class."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {each.name: _below_fields(each) for each in tree.body if isinstance(each, ast.ClassDef)}


def _below_fields(definition: ast.ClassDef) -> Mapping[str, str]:
    found = {}
    for field, below in pairwise(definition.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found
