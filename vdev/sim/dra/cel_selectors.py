"""CEL selectors of DeviceClasses and requests, evaluated by CEL's own makers (`cel-expr-python`, optional).

An expression is checked against the types of a device first, as the API server does; then it is evaluated. Where the
real environment has more functions than this one, an expression that uses them is refused, never accepted.
"""

import functools
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from ..objects.pod_manifest import ManifestError, quantity

INSTALL = "pip install cel-expr-python (the extra [sim] of vdev), or use claims and classes without selectors"
LONGEST_EXPRESSION = 10 * 1024
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
_TEXT = re.compile(r"""'([^'\\]*)'|"([^"\\]*)\"""")
_UNDECLARED = re.compile(r"undeclared reference to '(\w+)'")
_ELSEWHERE = (  # functions that a real server has
    *("sets", "find", "findAll", "sum", "min", "max", "isSorted", "indexOf", "lastIndexOf", "semver", "isSemver"),
    *("isURL", "url", "ip", "isIP", "cidr", "isCIDR"),
)
_TYPES = """
name: "vdev_sim_selectors.proto" package: "kubernetes" syntax: "proto3" dependency: "google/protobuf/struct.proto"
message_type { name: "Quantity" field { name: "text" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
message_type { name: "Semver" field { name: "text" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
message_type {
  name: "Device"
  field { name: "driver" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "allowMultipleAllocations" number: 2 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "attributes" number: 3 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Device.AttributesEntry" }
  field { name: "capacity" number: 4 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Device.CapacityEntry" }
  nested_type { name: "AttributesEntry" options { map_entry: true } %(fields)s }
  nested_type { name: "CapacityEntry" options { map_entry: true } %(fields)s }
}
"""
"""The types of the API as messages: a domain's content is dynamic, everything else is not."""
_OF_ENTRY = """
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" }"""
_MEMBERSHIP = re.compile(r"\bin\s+device\s*\.\s*(attributes|capacity)\b")


class SelectorError(Exception):
    """An expression cannot be compiled or evaluated. The text begins as the scheduler's does."""


class NotInstalled(SelectorError):
    """Nothing is installed that knows CEL."""


def is_semver(text: str) -> bool:
    """Whether a text is a version by semver 2.0.0."""
    return _SEMVER.fullmatch(text) is not None


def matches(expression: str, driver: str, device: Mapping[str, Any]) -> bool:
    """Whether a device is selected. Raises SelectorError."""
    program = _compiled(expression)
    value = program(_view(driver, device, expression))
    if not isinstance(value, bool):
        raise SelectorError(f"CEL runtime error: {value}")
    return value


def refusal(expression: str) -> str:
    """Why the API server refuses this expression; empty if it takes it, or if nothing is here that could tell.

    It has functions that are not there here; what uses them is stored, and selects nothing.
    """
    try:
        _compiled(expression)
    except NotInstalled:
        return ""
    except SelectorError as error:
        said = str(error).removeprefix("CEL compile error: ")
        if (missing := _UNDECLARED.search(said)) and missing[1] in _ELSEWHERE:
            return ""
        return said if said.startswith("must evaluate to") else f"compilation failed: {said}"
    return ""


@functools.lru_cache(maxsize=1024)
def _compiled(expression: str) -> Callable[[Mapping[str, Any]], Any]:
    """What evaluates an expression: a bool, or the text of an error."""
    if len(expression.encode()) > LONGEST_EXPRESSION:
        raise SelectorError(f"CEL compile error: the expression is longer than {LONGEST_EXPRESSION} bytes")
    environment = _environment()
    try:
        checked = environment.typed.compile(expression)
        program = environment.dynamic.compile(expression, disable_check=True)
    except RuntimeError as error:
        raise SelectorError(f"CEL compile error: {error}") from error
    if checked.return_type() not in (environment.bool, environment.dyn):
        raise SelectorError(
            "CEL compile error: must evaluate to bool or the unknown type, not " + checked.return_type().name()
        )

    def evaluate(view: Mapping[str, Any]) -> Any:
        try:
            result = program.eval(data={"device": view})
        except RuntimeError as error:
            return str(error)
        value = result.plain_value()
        if isinstance(value, bool) or result.type() == environment.error:
            return value
        return f"expected a boolean, found {value!r}"

    return evaluate


def _view(driver: str, device: Mapping[str, Any], expression: str) -> dict[str, Any]:
    """A device as expressions see it. An unknown domain is empty, unless the expression asks whether it is there."""
    environment = _environment()
    attributes: dict[str, dict[str, Any]] = {}
    for name, value in (device.get("attributes") or {}).items():
        ((kind, content),) = value.items()
        domain, _, bare = name.rpartition("/")
        known = environment.semver(text=content) if kind == "version" else content
        attributes.setdefault(domain or driver, {})[bare] = known
    capacity: dict[str, dict[str, Any]] = {}
    for name, value in (device.get("capacity") or {}).items():
        domain, _, bare = name.rpartition("/")
        amount = quantity(value["value"], name)
        capacity.setdefault(domain or driver, {})[bare] = environment.quantity(text=_canonical(amount))
    if not _MEMBERSHIP.search(expression):
        for one, other in _TEXT.findall(expression):
            attributes.setdefault(one or other, {})
            capacity.setdefault(one or other, {})
    shared = bool(device.get("allowMultipleAllocations"))
    return {"driver": driver, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": shared}


def _canonical(amount: Decimal) -> str:
    """One text for equal amounts, since messages are equal by their fields."""
    return format(amount.normalize(), "f")


class _Environment:
    """The two environments: one with the types of the API, and one for values."""

    def __init__(self) -> None:
        try:
            from cel_expr_python import cel
            from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
        except ImportError as error:
            raise NotInstalled(f"a selector needs CEL: {INSTALL}") from error
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, text_format

        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
        types = text_format.Parse(_TYPES % {"fields": _OF_ENTRY}, descriptor_pb2.FileDescriptorProto())
        pool.AddSerializedFile(types.SerializeToString())
        self.quantity = message_factory.GetMessageClass(pool.FindMessageTypeByName("kubernetes.Quantity"))
        self.semver = message_factory.GetMessageClass(pool.FindMessageTypeByName("kubernetes.Semver"))
        self.bool, self.dyn, self.error = cel.Type.BOOL, cel.Type.DYN, cel.Type.ERROR
        extensions = [ext_optional.ExtOptional(), ext_strings.ExtStrings(), ext_bindings.ExtBindings()]

        def environment(device: Any, functions: list[Any]) -> Any:
            return cel.NewEnv(
                descriptor_pool=pool, variables={"device": device}, functions=functions, extensions=extensions
            )

        declared, run = _functions(cel, self.quantity, self.semver)
        self.typed = environment(cel.Type("kubernetes.Device"), declared)
        self.dynamic = environment(cel.Type.Map(cel.Type.STRING, cel.Type.DYN), run)


def _functions(cel: Any, amount: Any, version: Any) -> tuple[list[Any], list[Any]]:
    """Kubernetes' libraries of quantities and versions: declared with every type for their check, and as they run.

    At run time a function of one name is one, whatever message it is called on: the runtime tells them apart no more.
    """
    kind = cel.Type
    q, v = kind("kubernetes.Quantity"), kind("kubernetes.Semver")

    def number(value: Any) -> Decimal:
        return Decimal(value.text)

    def make(value: Decimal) -> Any:
        return amount(text=_canonical(value))

    def sides(a: Any, b: Any) -> int:
        if type(a) is not type(b):
            raise ValueError("a quantity and a version cannot be compared")
        if isinstance(a, amount):
            return _compare(number(a), number(b))
        return _compare(_precedence(a.text), _precedence(b.text))

    def part(index: int) -> Callable[[Any], int]:
        return lambda value: int(_precedence(value.text)[index])

    rows: list[tuple[str, Any, list[list[Any]], bool, Callable[..., Any]]] = [
        ("quantity", q, [[kind.STRING]], False, lambda s: make(quantity(s, "quantity()"))),
        ("isQuantity", kind.BOOL, [[kind.STRING]], False, _is_quantity),
        ("semver", v, [[kind.STRING]], False, lambda s: _precedence(s) and version(text=s)),
        ("isSemver", kind.BOOL, [[kind.STRING]], False, is_semver),
        ("compareTo", kind.INT, [[q, q], [v, v]], True, sides),
        ("isGreaterThan", kind.BOOL, [[q, q], [v, v]], True, lambda a, b: sides(a, b) > 0),
        ("isLessThan", kind.BOOL, [[q, q], [v, v]], True, lambda a, b: sides(a, b) < 0),
        ("sign", kind.INT, [[q]], True, lambda a: _compare(number(a), Decimal(0))),
        ("asInteger", kind.INT, [[q]], True, lambda a: int(number(a))),
        ("isInteger", kind.BOOL, [[q]], True, lambda a: number(a) == int(number(a))),
        ("asApproximateFloat", kind.DOUBLE, [[q]], True, lambda a: float(number(a))),
        ("add", q, [[q, q]], True, lambda a, b: make(number(a) + number(b))),
        ("sub", q, [[q, q]], True, lambda a, b: make(number(a) - number(b))),
        *((name, kind.INT, [[v]], True, part(index)) for index, name in enumerate(("major", "minor", "patch"))),
    ]
    declared = [
        cel.FunctionDecl(
            name,
            [cel.Overload(f"{name}_{n}", result, types, member, run) for n, types in enumerate(signatures)],
        )
        for name, result, signatures, member, run in rows
    ]
    return declared, [
        cel.FunctionDecl(name, [cel.Overload(name, result, signatures[0], member, run)])
        for name, result, signatures, member, run in rows
    ]


@functools.cache
def _environment() -> _Environment:
    return _Environment()


def _is_quantity(text: str) -> bool:
    try:
        quantity(text, "isQuantity()")
    except ManifestError:
        return False
    return True


def _compare(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


def _precedence(text: str) -> tuple[Any, ...]:
    """A version's place in the order of semver 2.0.0: a release is above its pre-releases."""
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a version by semver 2.0.0")
    before = [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in found[4].split(".")] if found[4] else [(2, 0, "")]
    return int(found[1]), int(found[2]), int(found[3]), tuple(before)
