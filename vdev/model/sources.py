"""The sources of real devices of an entry: `glob`, `sysfs` or `usb`."""

import functools
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
)

from . import path_pattern
from .problem import listed
from .scalars import (
    Constraint,
    Count,
    Flag,
    OneOrMany,
    PathPattern,
    PathTemplate,
    Permissions,
    Shorthand,
    Text,
    Word,
    matching,
    not_empty,
    one_of,
)
from .section import Plain, Section, described, refuse


class PathType(StrEnum):
    """How a container gets a path: as a device node or as a bind mount."""

    DEVICE = "device"
    MOUNT = "mount"


class NodeKind(StrEnum):
    """The kind of file at a path of the host."""

    CHAR = "char"
    BLOCK = "block"
    FILE = "file"
    DIRECTORY = "directory"
    SOCKET = "socket"
    FIFO = "fifo"


class GroupBy(StrEnum):
    """Which matches form a device: the i-th match of each item, matches with the same text for `*`, or all matches."""

    POSITION = "position"
    NAME = "name"
    ALL = "all"


class GlobItem(Section):
    """One path pattern. Several patterns in one entry together form one device."""

    path: PathPattern
    """Absolute path pattern with *, ? and [...]; a * does not match '/'."""
    container_path: PathTemplate | None = None
    """Path in the container: a directory if it ends in '/', else a new name, which may hold placeholders.
    Default: as on the host."""
    permissions: Permissions | None = None
    """For type device: one or more of r (read), w (write) and m (mknod). Default: rw."""
    type: PathType = PathType.DEVICE
    """How a container gets the path: as a device node or as a bind mount."""
    read_only: Flag | None = None
    """For type mount: whether it is mounted read-only. Default: false."""
    optional: Flag = False
    """Whether a device may lack this path. If all paths are optional, it needs one of them."""
    limit: Count = 1
    """How many devices of the entry may share one match."""
    kinds: Annotated[tuple[NodeKind, ...], OneOrMany()] = ()
    """Kinds of paths that match. Default: char and block for devices, anything for mounts."""


Component = TypeVar("Component", bound=Section)


def _needed(components: tuple[Component, ...]) -> tuple[Component, ...]:
    """Return the components of a device. A single component is never optional."""
    return (components[0].model_copy(update={"optional": False}),) if len(components) == 1 else components


_PATH_JSON = {"type": "string", "pattern": "^/"}
GlobItemOrPath = Annotated[GlobItem, Shorthand((Mapping, GlobItem), _PATH_JSON, lambda path: {"path": path})]
"""A pattern with its options, or only its path."""

Glob = Annotated[tuple[GlobItemOrPath, ...], AfterValidator(_needed), OneOrMany()]
"""One pattern, or a list of patterns."""


_HEX = "0x"
_NUMBER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]{1,16}|([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][-+]?[0-9]{1,2})?)")


def number(text: str | None) -> float | None:
    """Parse a number in sysfs, decimal or hexadecimal with `0x`. Returns None if it is not a number."""
    text = "" if text is None else text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    return float(int(text, 16)) if _HEX in text.lower() else float(text)


def _number_text(value: object) -> Plain:
    if isinstance(value, bool) or number(str(value)) is None:
        refuse(f"expected a number, got {described(value)}")
    return Plain(value)


_pattern_problem = functools.partial(path_pattern.problem, is_path=False)
TextPattern = Annotated[Text, Constraint(_pattern_problem)]
WordPattern = Annotated[Word, Constraint(_pattern_problem)]
"""A pattern for a non-empty text."""

_PATTERN: TypeAdapter[Any] = TypeAdapter(TextPattern)
_PATTERNS: TypeAdapter[Any] = TypeAdapter(Annotated[tuple[TextPattern, ...], not_empty()])
_EXISTS: TypeAdapter[Any] = TypeAdapter(Flag)
_NUMBER_TEXT: TypeAdapter[Any] = TypeAdapter(
    Annotated[Any, BeforeValidator(_number_text), WithJsonSchema({"type": ["number", "string"]})]
)
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "gt": operator.gt,
    ">=": operator.ge,
    "ge": operator.ge,
    "<": operator.lt,
    "lt": operator.lt,
    "<=": operator.le,
    "le": operator.le,
}
_OPERANDS = {
    "in": _PATTERNS,
    "notIn": _PATTERNS,
    "exists": _EXISTS,
    **dict.fromkeys(_COMPARISONS, _NUMBER_TEXT),
}
_TEST_JSON = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
            "properties": {word: operand.json_schema() for word, operand in _OPERANDS.items()},
        },
    ]
}


@dataclass(frozen=True, slots=True)
class AttributeTest:
    """A condition on the value of a sysfs attribute, as in the file."""

    operator: str
    """A key of `_OPERANDS`; empty for a pattern."""
    operand: Any
    """The pattern, the patterns (in, notIn), a boolean (exists), or the text of a number."""


def _test(value: object) -> AttributeTest:
    """Parse a condition: a pattern, or a mapping of one operator to its operand."""
    if isinstance(value, AttributeTest):
        return value
    if type(value) is str:
        return AttributeTest("", _PATTERN.validate_python(value))
    if not isinstance(value, dict):
        quoted = f'write it in quotes: "{value}"' if isinstance(value, str) else ""
        refuse(
            f"expected a pattern, got {described(value)}", quoted or "a text, or such as {in: [...]} or {exists: true}"
        )
    if len(value) != 1:
        refuse(
            f"expected one operator, got {len(value)}",
            listed(_OPERANDS, lead="expected one of", command="vdev schema"),
        )
    ((word, operand),) = value.items()
    return AttributeTest(word, _OPERANDS[one_of(word, _OPERANDS)].validate_python(operand))


def meets(test: AttributeTest, value: str | None) -> bool:
    """Whether a value meets a condition. None is a missing attribute; only `notIn` and `exists: false` match it.

    sysfs has PCI ids as `0x10de` and USB ids as `046d`. A pattern matches with or without the prefix, and ignores case.
    """
    if test.operator == "exists":
        return (value is not None) == bool(test.operand)
    if compare := _COMPARISONS.get(test.operator):
        left, right = number(value), number(test.operand)
        return left is not None and right is not None and bool(compare(left, right))
    patterns = test.operand if test.operator else (test.operand,)
    is_matched = value is not None and any(_fits(value, pattern) for pattern in patterns)
    return is_matched != (test.operator == "notIn")


def wording(attribute: str, test: AttributeTest) -> str:
    """Return a condition in words: `idVendor = 046d`, `numa_node >= 1`, `driver exists`."""
    match test.operator:
        case "exists":
            return f"{attribute} {'exists' if test.operand else 'is absent'}"
        case "in" | "notIn":
            verb = "in" if test.operator == "in" else "not in"
            return f"{attribute} {verb} [{', '.join(test.operand)}]"
        case _:
            return f"{attribute} {test.operator or '='} {test.operand}"


def _fits(value: str, pattern: str) -> bool:
    if fnmatchcase(value, pattern):
        return True
    bare = value.lower()
    return bare.startswith(_HEX) and fnmatchcase(bare.removeprefix(_HEX), pattern.lower().removeprefix(_HEX))


def _attribute_problem(path: str) -> str:
    if not path:
        return "must not be empty"
    if path.startswith("/"):
        return f"{path!r} is an absolute path; write it relative to the device, with '../' for its parents"
    return ""


Attribute = Annotated[Text, Constraint(_attribute_problem, pattern="^[^/]")]
"""The path of an attribute, relative to its device."""

Subsystem = Annotated[
    Text, matching(r"(?!\.{1,2}$)[^/]+", "the name of a class, a bus or a subsystem, such as tty, without '/'")
]
"""The name of a directory in /sys/class or /sys/bus."""

AttributeCondition = Annotated[AttributeTest, PlainValidator(_test), WithJsonSchema(_TEST_JSON)]
"""A condition on an attribute's value."""


class Sysfs(Section):
    """Real devices of a class or bus in sysfs that meet every condition."""

    class_: Annotated[Subsystem | None, Field(alias="class")] = None
    """A class below /sys/class, such as video4linux."""
    bus: Subsystem | None = None
    """A bus below /sys/bus, such as usb or pci."""
    match: dict[Attribute, AttributeCondition] = {}
    """Conditions on attribute files, by their path relative to the device, with ../ for parents. A condition is a
    pattern, or one of {in: [...]}, {notIn: [...]}, {exists: true}, {">=": 4}, {gt: 4} and so on."""
    children: tuple[Subsystem, ...] = ()
    """Subsystems whose device nodes below the match are part of the device, such as drm or hidraw."""
    container_path: PathTemplate | None = None
    """Path in the container: a directory if it ends in '/', else a new name. Default: as on the host."""
    permissions: Permissions = "rw"
    """One or more of r (read), w (write) and m (mknod)."""

    @property
    def kind(self) -> str:
        """The kind of the subsystem: `class` or `bus`."""
        return "class" if self.class_ else "bus"

    @property
    def subsystem(self) -> str:
        return self.class_ or self.bus or ""

    @property
    def attribute_names(self) -> frozenset[str]:
        """The attributes of its devices, for templates; a child's is the name of its nodes or interfaces."""
        return frozenset({"name", "driver", *self.match, *self.children})


def _padded(width: int) -> AfterValidator:
    """Convert hexadecimal digits to the form of sysfs: lower case, full width, no prefix."""
    return AfterValidator(lambda digits: digits.lower().removeprefix("0x").zfill(width))


_Hex4 = Annotated[
    Text, matching("(?:0[xX])?[0-9a-fA-F]{1,4}", 'up to four hexadecimal digits, such as "046d"'), _padded(4)
]
_Hex2 = Annotated[
    Text, matching("(?:0[xX])?[0-9a-fA-F]{1,2}", 'up to two hexadecimal digits, such as "03"'), _padded(2)
]


class Usb(Section):
    """Real USB devices by identity. A key that is not given matches everything; at least one must be given."""

    vendor: _Hex4 | None = None
    """Vendor id: hexadecimal digits, in quotes."""
    product: _Hex4 | None = None
    """Product id: hexadecimal digits, in quotes."""
    serial: WordPattern | None = None
    """Pattern for the serial number."""
    port: WordPattern | None = None
    """Pattern for the port into which the device is plugged, such as 1-1.2."""
    class_: Annotated[_Hex2 | None, Field(alias="class")] = None
    """Class of the device or of one of its interfaces: hexadecimal digits, in quotes."""
    children: tuple[Subsystem, ...] = ()
    """Subsystems whose device nodes are part of the device, such as hidraw or tty."""
    container_path: PathTemplate | None = None
    """Path in the container: a directory if it ends in '/', else a new name. Default: as on the host."""
    permissions: Permissions = "rw"
    """One or more of r (read), w (write) and m (mknod)."""
    optional: Flag = False
    """In a list: whether a device may lack this item."""

    @property
    def attribute_names(self) -> frozenset[str]:
        """The attributes of its devices, for templates; a child's is the name of its nodes or interfaces."""
        own = {"vendor", "product", "serial", "port", "manufacturerName", "productName"}
        return frozenset({*own, *self.children})


Usbs = Annotated[tuple[Usb, ...], AfterValidator(_needed), not_empty(), OneOrMany()]
"""One USB device, or a list of USB devices that together form a device."""
