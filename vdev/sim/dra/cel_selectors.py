"""Evaluates the CEL selectors of DeviceClasses and requests with `cel-expr-python`, an optional dependency.

The types of attributes and capacities are known only at evaluation, so a type error is found only then. A cluster's
API server refuses some of these expressions earlier. A Kubernetes function that the library does not have is an error.

In expressions, a quantity is a map `{"quantity": …}`, and a version a map `{"version": …}`.
"""

import functools
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from ...model.names import version_problem
from ...model.quantity import amount_of
from ..objects.pod_manifest import quantity

INSTALL = "pip install cel-expr-python (the extra [sim] of vdev), or use claims and classes without selectors"
_TEXT = re.compile(r"""'([^'\\]*)'|"([^"\\]*)\"""")
_Amount: TypeAlias = Mapping[str, str]  # a quantity or a version
_MEMBERSHIP = re.compile(r"\bin\s+device\s*\.\s*(attributes|capacity)\b")


class SelectorError(Exception):
    """An expression cannot be compiled or evaluated. The text has the scheduler's prefix."""


class CompileError(SelectorError):
    """An expression is invalid; a cluster's API server refuses it."""


class NotInstalled(SelectorError):
    """The CEL library is not installed."""


def matches(expression: str, driver: str, device: Mapping[str, Any]) -> bool:
    """Whether an expression selects a device. Raises SelectorError."""
    view = _view(driver, device, expression)
    try:
        found = _compiled(expression).eval(data={"device": view})
    except RuntimeError as error:
        raise SelectorError(f"CEL runtime error: {error}") from error
    value = found.plain_value()
    if isinstance(value, bool):
        return value
    is_error = found.type() == _library()[0].Type.ERROR
    raise SelectorError(f"CEL runtime error: {value if is_error else f'expected a boolean, found {value!r}'}")


@functools.lru_cache(maxsize=1024)
def _compiled(expression: str) -> Any:
    """Compile an expression. Raises CompileError or NotInstalled."""
    _, environment = _library()
    try:
        return environment.compile(expression)
    except RuntimeError as error:
        raise CompileError(f"CEL compile error: {error}") from error


def _view(driver: str, device: Mapping[str, Any], expression: str) -> dict[str, Any]:
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Any]] = {}
    for name, value in (device.get("attributes") or {}).items():
        ((kind, content),) = value.items()
        domain, _, bare = name.rpartition("/")
        attributes.setdefault(domain or driver, {})[bare] = {"version": content} if kind == "version" else content
    for name, value in (device.get("capacity") or {}).items():
        domain, _, bare = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[bare] = _quantity(quantity(value["value"], name))
    # In Kubernetes, a missing domain of a device reads as an empty map, but `in` does not find it. So each string
    # literal in the expression becomes a domain, unless the expression uses `in`.
    if not _MEMBERSHIP.search(expression):
        for one, other in _TEXT.findall(expression):
            attributes.setdefault(one or other, {})
            capacity.setdefault(one or other, {})
    shared = bool(device.get("allowMultipleAllocations"))
    return {"driver": driver, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": shared}


@functools.cache
def _library() -> tuple[Any, Any]:
    """Return the module `cel` and an environment with Kubernetes' functions. Raises NotInstalled."""
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
    except ImportError as error:
        raise NotInstalled(f"a selector needs CEL: {INSTALL}") from error
    environment = cel.NewEnv(
        variables={"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)},
        functions=_functions(cel),
        extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings(), ext_bindings.ExtBindings()],
    )
    return cel, environment


def _functions(cel: Any) -> list[Any]:
    type_ = cel.Type
    amount = type_.Map(type_.STRING, type_.STRING)
    rows: list[tuple[str, Any, list[Any], Callable[..., Any]]] = [
        ("quantity", amount, [type_.STRING], lambda text: _quantity(quantity(text, "quantity()"))),
        ("isQuantity", type_.BOOL, [type_.STRING], lambda text: amount_of(text) is not None),
        ("semver", amount, [type_.STRING], _semver),
        ("isSemver", type_.BOOL, [type_.STRING], lambda text: not version_problem(text)),
        ("compareTo", type_.INT, [amount, amount], _compare),
        ("isGreaterThan", type_.BOOL, [amount, amount], lambda one, other: _compare(one, other) > 0),
        ("isLessThan", type_.BOOL, [amount, amount], lambda one, other: _compare(one, other) < 0),
        ("sign", type_.INT, [amount], lambda one: int(_number(one) > 0) - int(_number(one) < 0)),
        ("asInteger", type_.INT, [amount], lambda one: int(_number(one))),
        ("isInteger", type_.BOOL, [amount], lambda one: _number(one) == int(_number(one))),
        ("asApproximateFloat", type_.DOUBLE, [amount], lambda one: float(_number(one))),
        ("add", amount, [amount, amount], lambda one, other: _quantity(_number(one) + _number(other))),
        ("sub", amount, [amount, amount], lambda one, other: _quantity(_number(one) - _number(other))),
        ("major", type_.INT, [amount], lambda one: _precedence(one["version"])[0]),
        ("minor", type_.INT, [amount], lambda one: _precedence(one["version"])[1]),
        ("patch", type_.INT, [amount], lambda one: _precedence(one["version"])[2]),
    ]
    return [
        cel.FunctionDecl(name, [cel.Overload(name, result, types, types[0] is amount, run)])
        for name, result, types, run in rows
    ]


def _quantity(amount: Fraction) -> _Amount:
    return {"quantity": str(amount)}


def _semver(text: str) -> _Amount:
    _precedence(text)  # raises ValueError if the text is not a version
    return {"version": text}


def _number(amount: _Amount) -> Fraction:
    if "version" in amount:
        raise ValueError(f"{amount['version']} is a version, not a quantity")
    return Fraction(amount["quantity"])


def _compare(one: _Amount, other: _Amount) -> int:
    if one.keys() != other.keys():
        raise ValueError("a quantity and a version cannot be compared")
    first, second = _order(one), _order(other)
    return int(first > second) - int(first < second)


def _order(amount: _Amount) -> Any:
    """Return the sort key of a quantity or a version."""
    return _number(amount) if "quantity" in amount else _precedence(amount["version"])


def _precedence(text: str) -> tuple[Any, ...]:
    """Return the sort key of a version (semver 2.0.0): a release is above its pre-releases."""
    if problem := version_problem(text):
        raise ValueError(problem)
    release, _, pre_release = text.partition("+")[0].partition("-")
    parts = pre_release.split(".") if pre_release else []
    before = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts] or [(2, 0, "")]
    return (*map(int, release.split(".")), before)
