"""Where the devices of an entry come from: `virtual`, `glob`, `sysfs` or `usb`."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    Field,
    PlainValidator,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from ..model import path_pattern
from ..model.entry import NodeKind, Operator, PathType
from ..model.scalars import (
    INTEGER,
    PATH,
    STRING,
    AsWritten,
    Constraint,
    Count,
    Flag,
    Index,
    ItemInJson,
    Memory,
    PathPattern,
    PathText,
    Permissions,
    Plain,
    Section,
    Shorthand,
    Text,
    Whole,
    Word,
    between,
    choice,
    described,
    matching,
    not_empty,
    one_of,
    one_or_many,
    refuse,
    without_problem,
)
from ..model.telemetry import PhysicsModel
from ..model.virtual_node import VirtualNode
from ..planning import naming
from .partitions_block import PartitioningModel

NumaNode = Annotated[Whole, between(0, 1023)]


DeviceId = Annotated[
    Text,
    matching(
        "(?=.{1,63}$)(?!.*::)[A-Za-z0-9](?:[A-Za-z0-9._:-]*[A-Za-z0-9])?",
        "1 to 63 letters, digits, '.', '_', '-' and ':', with a letter or digit at both ends, and no '::'",
    ),
]


def _each_once(ids: list[str]) -> None:
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            refuse(f"{each!r} is listed twice", "give each device an id of its own")
        seen.add(each)


class Virtual(Section):
    """Virtual devices. Values given here win over those of the preset."""

    preset: Word | None = None
    """A real model, such as a100-sxm4-40gb, or a whole node of it, such as dgx-a100."""
    count: Count | None = None
    """How many devices. Default: the node preset's number, else 1."""
    ids: Annotated[list[DeviceId], Constraint(_each_once)] = []
    """Ids of the devices, one for each, such as those of real devices elsewhere. Default: made of the entry's name and
    the index, or as the maker's driver makes them."""
    memory: Memory | None = None
    """Memory of each device, as a Kubernetes quantity such as 16Gi. Default: the preset's, else none."""
    numa: Annotated[list[NumaNode], one_or_many(INTEGER)] | None = None
    """NUMA node: one number for all devices, or a list with one per device. Default: the preset's, else none."""
    attributes: dict[str, AsWritten] = {}
    """Facts about each device, for templates such as {attributes.model}. Values are kept as written."""
    links: list[list[Index]] | None = None
    """Fast links between devices. Either groups of indices, [[0, 1], [2, 3]]; or a score for every pair, as `count`
    lists of `count` numbers, symmetric and with a zero diagonal, where 100 is one NVLink. `count` lists of `count`
    numbers are always read as scores."""
    node: VirtualNode | None = None
    """A node or file that a container gets for each device. Default: none."""
    partitioning: PartitioningModel | None = None
    """How a device can be partitioned, in the form that presets use. Default: as in the preset, else not at all."""
    physics: PhysicsModel | None = None
    """What a device draws and how warm it gets under load, in the form that presets use. Default: as in the preset."""


class GlobItem(Section):
    """One path pattern. Several patterns in one entry together form one device."""

    path: PathPattern
    """Absolute path pattern with *, ? and [...]; a * does not match '/'."""
    container_path: PathText = ""
    """Path in the container: a directory when it ends in '/', else a new name, which may hold placeholders.
    Default: as on the host."""
    permissions: Permissions | None = None
    """For type device: one or more of r (read), w (write) and m (mknod). Default: rw."""
    type: Annotated[PathType, choice(PathType)] = PathType.DEVICE
    """How it reaches the container: as a device node, or as a bind mount."""
    read_only: Flag | None = None
    """For type mount: whether it is mounted read-only. Default: false."""
    optional: Flag = False
    """Whether a device may lack this path. Where all paths are optional, it needs one of them."""
    limit: Count = 1
    """How many devices of the entry may share one match."""
    kinds: Annotated[list[Annotated[NodeKind, choice(NodeKind)]], one_or_many(STRING)] = []
    """What may match. Default: char and block for devices, anything for mounts."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_text(cls, data: Any) -> Any:
        if isinstance(data, str):
            refuse(f"expected a mapping, got {described(data)}", f"in a list, write {{path: {data}}}")
        return data


def path_item(value: object) -> list[Any]:
    """A single pattern as a list of items."""
    return [{"path": value} if isinstance(value, str) else value]


Glob = Annotated[list[GlobItem], ItemInJson(), Shorthand((list, tuple), PATH, path_item)]
"""One pattern, or a list of patterns."""

_OPERATORS = {
    "in": Operator.IN,
    "notIn": Operator.NOT_IN,
    "exists": Operator.EXISTS,
    ">": Operator.GT,
    "gt": Operator.GT,
    ">=": Operator.GE,
    "ge": Operator.GE,
    "<": Operator.LT,
    "lt": Operator.LT,
    "<=": Operator.LE,
    "le": Operator.LE,
}
_TEXT_LIST = {"type": "array", "minItems": 1, "items": {"type": "string"}}
_OPERANDS = {Operator.IN: _TEXT_LIST, Operator.NOT_IN: _TEXT_LIST, Operator.EXISTS: {"type": "boolean"}}
_TEST_JSON = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
            "properties": {
                word: _OPERANDS.get(operator, {"type": ["number", "string"]}) for word, operator in _OPERATORS.items()
            },
        },
    ]
}


@dataclass(frozen=True, slots=True)
class Test:
    """A condition on an attribute's value: the operator with its operands, and how it is written."""

    operator: Operator
    values: tuple[str, ...]
    written: str | dict[str, str | list[str]]


def _test(value: object) -> Test:
    """What an attribute must hold: a pattern, or a mapping of one operator to its operand."""
    if isinstance(value, Test):
        return value
    if type(value) is str:
        return Test(Operator.GLOB, _patterns(value), value)
    if not isinstance(value, dict):
        quoted = f'write it in quotes: "{value}"' if isinstance(value, str) else ""
        refuse(
            f"expected a pattern, got {described(value)}", quoted or "a text, or such as {in: [...]} or {exists: true}"
        )
    if len(value) != 1:
        refuse(f"expected one operator, got {len(value)}", "expected one of " + ", ".join(_OPERATORS))
    ((word, operand),) = value.items()
    operator = _OPERATORS[one_of(word, _OPERATORS)]
    values = _operand(operator, operand)
    listed = operator in (Operator.IN, Operator.NOT_IN)
    return Test(operator, values, {word: list(values) if listed else Plain(values[0])})


def _patterns(*texts: str) -> tuple[str, ...]:
    for text in texts:
        if any(found := path_pattern.word_problem(text)):
            refuse(*found)
    return texts


def _operand(operator: Operator, value: object) -> tuple[str, ...]:
    match operator:
        case Operator.IN | Operator.NOT_IN:
            items = value if isinstance(value, list) else []
            if not items:
                refuse(f"expected a list of strings, got {described(value)}")
            for item in items:
                if type(item) is not str:
                    refuse(f"expected a list of strings, with {described(item)} in it", f'write it in quotes: "{item}"')
            return _patterns(*items)
        case Operator.EXISTS:
            return (str(_EXISTS.validate_python(value)).lower(),)
        case _:
            if isinstance(value, bool) or naming.number(str(value)) is None:
                refuse(f"expected a number, got {described(value)}")
            return (str(value),)


_EXISTS: TypeAdapter[bool] = TypeAdapter(Flag)


def _attribute_problem(path: str) -> str:
    if not path:
        return "must not be empty"
    if path.startswith("/"):
        return f"{path!r} is an absolute path; write it relative to the device, with '../' for its parents"
    return ""


Attribute = Annotated[Text, without_problem(_attribute_problem, pattern="^[^/]")]
"""The path of an attribute, relative to its device."""

Subsystem = Annotated[
    Text, matching(r"(?!\.{1,2}$)[^/]+", "the name of a class, a bus or a subsystem, such as tty, without '/'")
]
"""A name below /sys/class or /sys/bus."""

WordPattern = Annotated[Word, without_problem(path_pattern.word_problem)]
"""A pattern for a word."""

Condition = Annotated[Test, PlainValidator(_test), WithJsonSchema(_TEST_JSON)]
"""A condition on an attribute's value."""


class Sysfs(Section):
    """Real devices of a class or bus in sysfs that meet every condition."""

    class_: Annotated[Subsystem | None, Field(alias="class")] = None
    """A class below /sys/class, such as video4linux."""
    bus: Subsystem | None = None
    """A bus below /sys/bus, such as usb or pci."""
    match: dict[Attribute, Condition] = {}
    """What attribute files must hold, by their path relative to the device, with ../ for parents. A value is a pattern,
    or one of {in: [...]}, {notIn: [...]}, {exists: true}, {">=": 4}, {gt: 4} and so on."""
    children: list[Subsystem] = []
    """Subsystems whose device nodes below the match are part of the device, such as drm or hidraw."""
    container_path: PathText = ""
    """Path in the container: a directory when it ends in '/', else a new name. Default: as on the host."""
    permissions: Permissions = "rw"
    """One or more of r (read), w (write) and m (mknod)."""


_HEX4 = matching("(?:0[xX])?[0-9a-fA-F]{1,4}", 'up to four hexadecimal digits, such as "046d"')
_HEX2 = matching("(?:0[xX])?[0-9a-fA-F]{1,2}", 'up to two hexadecimal digits, such as "03"')


class Usb(Section):
    """Real USB devices by identity. A key that is not given matches everything; at least one must be given."""

    vendor: Annotated[Text, _HEX4] | None = None
    """Vendor id: hexadecimal digits, in quotes."""
    product: Annotated[Text, _HEX4] | None = None
    """Product id: hexadecimal digits, in quotes."""
    serial: WordPattern | None = None
    """Pattern for the serial number."""
    port: WordPattern | None = None
    """Pattern for the port, such as 1-1.2: the place where something is plugged in, whatever it is."""
    class_: Annotated[Annotated[Text, _HEX2] | None, Field(alias="class")] = None
    """Class of the device or of one of its interfaces: hexadecimal digits, in quotes."""
    children: list[Subsystem] = []
    """Subsystems whose device nodes are part of the device, such as hidraw or tty."""
    container_path: PathText = ""
    """Path in the container: a directory when it ends in '/', else a new name. Default: as on the host."""
    permissions: Permissions = "rw"
    """One or more of r (read), w (write) and m (mknod)."""
    optional: Flag = False
    """In a list: whether a device may lack this one."""


def _usbs(value: object, _: ValidatorFunctionWrapHandler) -> list[Usb]:
    """One form or the other, and errors of that alone."""
    return _STICKS.validate_python(value) if isinstance(value, (list, tuple)) else [Usb.model_validate(value)]


_STICKS: TypeAdapter[list[Usb]] = TypeAdapter(Annotated[list[Usb], not_empty()])
Usbs = Annotated[list[Usb], WrapValidator(_usbs), ItemInJson()]
"""One USB device, or a list of those that form a device together."""
