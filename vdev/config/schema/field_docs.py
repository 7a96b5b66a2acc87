"""The sentences that stand below the fields of a model, read from its source when somebody asks for them.

Only the published schema and the explanation of an error need them; reading all of them at import, as pydantic would
do, takes longer than reading a configuration.
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
