"""The types of scalar values in the configuration.

Each type validates a scalar as it is written in the file. Its error contains what it expects.

The type of an unquoted scalar is never guessed silently: if a string is expected, an unquoted number is an error that
asks for quotes, and vice versa. Python values are also accepted, so that models can be built in code.
"""

import math
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from . import names, path_pattern, quantity, template
from .section import MAX_QUOTED, Plain, described, refuse, unlisted
from .template import Template

# --- texts -----------------------------------------------------------------------------------------------------------


def _text(value: object) -> object:
    if isinstance(value, Plain) or (isinstance(value, (int, float)) and not isinstance(value, str)):
        kind = "boolean" if str(value).lower() in ("true", "false") else "number"
        written = str(value)
        refuse(f"expected a string, and {written} unquoted is a {kind} in YAML", f'write it in quotes: "{written}"')
    return value if isinstance(value, str) else refuse(f"expected a string, got {described(value)}")


def _as_written(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    return refuse(f"expected a string, a number or a boolean, got {described(value)}")


Text = Annotated[str, BeforeValidator(_text)]
"""A string. A string that looks like a number must be quoted."""

AsWritten = Annotated[
    str,
    BeforeValidator(_as_written),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}),
]
"""A string, number or boolean, stored as the text in the file."""


Refusal = str | tuple[str, str]
"""What is wrong with a value, optionally with a hint; an empty string if the value is valid."""


class Constraint:
    """Refuses a value for which `problem_of` returns a problem. `json` is the equivalent in JSON Schema."""

    def __init__(self, problem_of: Callable[[Any], Refusal], **json: object) -> None:
        self._problem_of = problem_of
        self._json = json

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: object) -> object:
            found = self._problem_of(value)
            message, hint = (found, "") if isinstance(found, str) else found
            return refuse(message, hint) if message else value

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | self._json


def matching(regex: str, expected: str) -> Constraint:
    """Require that a regular expression matches the whole text. `expected` describes it in words."""
    compiled = re.compile(regex)

    def problem(value: str) -> Refusal:
        return "" if compiled.fullmatch(value) else (f"{value!r} is not allowed", f"expected {expected}")

    return Constraint(problem, pattern=f"^(?:{regex})$")


def between(least: int, most: int | None = None) -> Constraint:
    """Require a number within inclusive bounds."""
    expected = f"at least {least}" if most is None else f"{least} to {most}"

    def problem(value: int) -> Refusal:
        fits = least <= value and (most is None or value <= most)
        return "" if fits else (f"{value} is out of range", f"expected {expected}")

    return Constraint(problem, minimum=least) if most is None else Constraint(problem, minimum=least, maximum=most)


def _path_problem(value: str) -> str:
    if not value.startswith("/"):
        return f"{value!r} is not an absolute path; it must start with '/'"
    if ".." in value.split("/"):
        return f"{value!r} contains '..'; write the path without it"
    if any(ord(each) < ord(" ") or each == "\x7f" for each in value):
        return f"{value!r} has a line break or another control character"
    return ""


def _template_path_problem(path: Template) -> Refusal:
    value = path.source
    if problem := _path_problem(value):
        return problem
    if found := next((each for each in value if each in "*?"), ""):
        hint = "end a containerPath in '/' to keep the name of each match, or use a placeholder such as {index}"
        return f"{value!r} has a {found!r}, which is not a wildcard here but a part of the name", hint
    return ""


def _permissions_problem(value: str) -> str:
    if not value or set(value) - set("rwm") or len(set(value)) != len(value):
        return f"{value!r} is not a set of permissions; expected one or more of r (read), w (write), m (mknod)"
    return ""


def _empty_problem(value: str) -> str:
    return "" if value else "must not be empty"


Word = Annotated[Text, Constraint(_empty_problem, minLength=1)]
"""A non-empty string."""

_RESOURCE = "^[a-z0-9.-]+/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
ResourceName = Annotated[Text, Constraint(names.resource_name_problem, pattern=_RESOURCE)]
"""The name of an extended resource: `<domain>/<name>`."""


def _templated_problem(value: str) -> Refusal:
    """Like `resource_name_problem`, for a name that may have placeholders after '/'."""
    if "{" not in value and "}" not in value:
        return names.resource_name_problem(value)
    domain, slash, _ = value.partition("/")
    try:
        parsed = template.parse(value)
    except template.TemplateError as error:
        return str(error)
    if not slash or "{" in domain:
        return f"{value!r} must begin with a domain without placeholders, such as example.com/{{index}}"
    if unfit := [each for each in parsed.names if each in ("resource", "profile", "memory.mib", "memory.bytes")]:
        return f"{{{unfit[0]}}} cannot be part of a resource's name", "expected {index}, {id}, {name} or {attributes.X}"
    return names.resource_name_problem(parsed.render(dict.fromkeys(parsed.names, "x")))


ResourceTemplate = Annotated[Text, Constraint(_templated_problem, pattern="^[a-z0-9.-]+/.+$")]
"""The name of an extended resource. The part after '/' may have placeholders."""

EnvName = Annotated[Text, Constraint(names.env_name_problem, pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
"""The name of an environment variable."""


def parsed_template(value: object) -> Template:
    if isinstance(value, Template):
        return value
    try:
        return template.parse(str(_text(value)))
    except template.TemplateError as error:
        return refuse(str(error))


TemplateText = Annotated[Template, PlainValidator(parsed_template), WithJsonSchema({"type": "string"})]
"""A string with placeholders such as {index} or {attributes.model}. {{ and }} are literal braces."""

PathTemplate = Annotated[TemplateText, Constraint(_template_path_problem, pattern="^/[^*?]*$")]
"""An absolute path with placeholders."""

AbsolutePath = Annotated[Text, Constraint(_path_problem, pattern="^/")]
"""An absolute path without `..` and control characters."""

PathPattern = Annotated[AbsolutePath, Constraint(path_pattern.problem)]
"""An absolute path pattern without likely mistakes."""

NodePattern = Annotated[Word, Constraint(path_pattern.problem)]
"""A pattern for node names."""

AnnotationKey = Annotated[Word, Constraint(names.annotation_key_problem)]
"""The key of an annotation that Kubernetes accepts."""

LabelKey = Annotated[Word, Constraint(names.key_problem)]
"""The key of a label that Kubernetes accepts."""

ConditionType = Annotated[Word, Constraint(names.condition_type_problem)]
"""The type of a Node condition that vdev may write."""

Permissions = Annotated[Text, Constraint(_permissions_problem, pattern="^[rwm]{1,3}$")]
"""Permissions of a container for a device node: one or more of r (read), w (write) and m (mknod)."""


_MAX_PORT = 65535


def _host_port(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) <= _MAX_PORT):
        refuse(f"{value!r} is not an address", 'expected host:port, or ":9400" for all addresses of the node')
    if host.count(":") and not (host.startswith("[") and host.endswith("]")):
        refuse(f"{value!r} is not an address", 'write an IPv6 address in brackets, such as "[::1]:9400"')
    try:
        host.encode("idna")  # like Python's sockets
    except UnicodeError:
        refuse(f"{value!r} is not an address", f"{host!r} is not a host name")
    return value


HostPort = Annotated[AsWritten, AfterValidator(_host_port)]
"""An address to listen on: host:port, or :port for all addresses of the node."""


# --- numbers, booleans, times ----------------------------------------------------------------------------------------

_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_MAX_DIGITS = 18
MAX_COUNT = 200_000  # devices with the shortest ids that fit in 4 MiB, the kubelet's limit for a list
_LOOKS_BOOLEAN = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _whole(value: object) -> object:
    if isinstance(value, Plain):
        if _WHOLE.fullmatch(value) and len(value) <= _MAX_DIGITS:
            return int(value)
        hint = "write it in decimal, without leading zeros" if value[-1:].isalnum() and "." not in value else ""
        refuse(f"expected a whole number, got {described(value)}", hint)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    hint = "remove the quotes" if isinstance(value, str) and _WHOLE.fullmatch(value) else ""
    return refuse(f"expected a whole number, got {described(value)}", hint)


def boolean(value: object, expected: str = "true or false") -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, Plain) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    hint = ""
    if isinstance(value, str) and not isinstance(value, Plain):
        if value.lower() in ("true", "false"):
            hint = "remove the quotes"
        elif meant := _LOOKS_BOOLEAN.get(value.lower()):
            hint = f"write {meant}"
    return refuse(f"expected {expected}, got {described(value)}", hint)


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole decimal number."""

Count = Annotated[Whole, between(1, MAX_COUNT)]
Index = Annotated[Whole, between(0)]

Flag = Annotated[bool, BeforeValidator(boolean)]
"""A boolean: only unquoted true or false, unlike YAML's yes and on."""

_MOST_NUMBER = 1e15


def _number(value: object) -> Any:
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if isinstance(value, bool) or not 0 <= number < _MOST_NUMBER:  # also refuses infinity
        refuse(f"expected a number of at least 0, got {described(value)}")
    return number


Number = Annotated[float, BeforeValidator(_number), WithJsonSchema({"type": "number", "minimum": 0})]
"""A number of at least 0."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_DECIMAL = re.compile(r"\d{1,9}(\.\d{1,9})?")


def _duration(value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    if isinstance(value, Plain) and _DECIMAL.fullmatch(value):
        return float(value)
    if isinstance(value, str) and value and len(value) <= MAX_QUOTED and (parts := _DURATION.fullmatch(value)):
        hours, minutes, seconds, milliseconds = (float(part or 0) for part in parts.groups())
        return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    return refuse(f"expected a duration, got {described(value)}", "such as 200ms, 5s, 1m30s, or a number of seconds")


Duration = Annotated[
    float,
    BeforeValidator(_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^([0-9.]+(h|ms|m|s))+$"}]}
    ),
]
"""A duration in seconds: a number, or a text such as 200ms, 5s or 1m30s."""


def index_range(text: str) -> range:
    """Return the indices of `3` or `0-2`, with both ends. A reversed range is empty."""
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


def longer_than_nothing(most: float = math.inf, shown: str = "") -> Constraint:
    """Require a duration above 0 and at most `most` seconds. `shown` is that limit in messages."""

    def problem(value: float) -> Refusal:
        expected = "expected more than 0" + f", at most {shown}" * bool(shown)
        return "" if 0 < value <= most else (f"{value:g} s is out of range", expected)

    return Constraint(problem)


def _amount(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or len(str(value)) > MAX_QUOTED:
        refuse(f"expected an amount, got {described(value)}", "such as 100, 16Gi or 10G")
    try:
        return quantity.parse_quantity(str(value))
    except quantity.QuantityError as error:
        return refuse(str(error))


AMOUNT_JSON = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^\+?[0-9.]+([eE][+-]?[0-9]+|[KMGTPE]i|[kMGTPE])?$"},
    ]
}
Amount = Annotated[int, BeforeValidator(_amount), WithJsonSchema(AMOUNT_JSON)]
"""A whole amount, as a Kubernetes quantity: 100, 16Gi, 10G. Memory is in bytes."""


# --- choices and lists -----------------------------------------------------------------------------------------------


def one_of(value: object, allowed: Iterable[str]) -> str:
    """Return the value if it is an allowed word, else refuse it and suggest the nearest word."""
    words = [str(word) for word in allowed]
    return str(value) if isinstance(value, str) and value in words else refuse(*unlisted(value, words))


class Shorthand:
    """Accepts a short form of a value. `convert` returns the full form, of the types `full`. `json` is the schema."""

    def __init__(self, full: tuple[type, ...], json: dict[str, Any], convert: Callable[[Any], Any]) -> None:
        self._full = full
        self._json = json
        self._convert = convert

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def whole(value: object) -> object:
            return value if isinstance(value, self._full) else self._convert(value)

        return core_schema.no_info_before_validator_function(whole, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        full = handler(schema)
        return {"anyOf": [self._json or full["items"], full]}


class OneOrMany(Shorthand):
    """Accepts a single item as a list with one item."""

    def __init__(self) -> None:
        super().__init__((list, tuple), {}, lambda item: [item])


def not_empty(message: str = "the list is empty", hint: str = "name at least one, or leave the key out") -> Constraint:
    return Constraint(lambda value: "" if value else (message, hint), minItems=1)


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


NO_DEFAULT = Field(json_schema_extra=_without_default)
"""Omits the default from the JSON Schema, because it depends on other values."""
