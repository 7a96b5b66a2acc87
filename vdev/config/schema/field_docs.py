"""The sentences below the fields of a model, read from its source when they are needed.

Only the JSON Schema and a few error messages need them. Pydantic's `ConfigDict(use_attribute_docstrings=True)` reads
all of them at import, which then takes a third longer (65 ms of 200).
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def sentences(model: type[BaseModel]) -> Mapping[str, str]:
    """What the source says below each field, by the field's name, inherited ones included."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each is not BaseModel:
            found |= _own(each)
    return found


def _own(model: type[BaseModel]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, below in pairwise(definition.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found
