"""The public interfaces as lines of text, one promise per line, so that a diff shows each changed promise.

The sources are signatures, the published schema, `--help`, and printed documents.
"""

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

# --- a Python module -------------------------------------------------------------------------------------------------


def of_module(module: ModuleType) -> Iterator[str]:
    """Yield every name in `__all__` with its public attributes."""
    for name in module.__all__:
        yield from _of_object(name, getattr(module, name))


def _of_object(name: str, value: object) -> Iterator[str]:
    if not inspect.isclass(value):
        if members := typing.get_args(value):
            for member in members:
                yield f"{name}: or {member.__name__}"
                yield from _of_object(f"{name}.{member.__name__}", member)
        else:
            yield from _of_call(name, value)
        return
    bases = [base.__name__ for base in value.__mro__[1:] if base.__module__.startswith("vdev") or _is_error(base)]
    yield f"{name}: " + ("class" if not bases else f"class, a {' and a '.join(bases)}")
    if issubclass(value, enum.Enum):
        yield from (f"{name}.{member.name}: {member.value!r}" for member in value)
        return
    if inspect.isfunction(value.__init__) and not getattr(value, "_is_protocol", False):
        yield from _of_call(name, value)
    fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    yield from (f"{name}.{each}" for each in sorted(fields | _set_in_init(value)) if not each.startswith("_"))
    for each, member in inspect.getmembers(value):
        if each.startswith("_") and each not in ("__aenter__", "__enter__"):
            continue
        if isinstance(member, property):
            yield f"{name}.{each}"
        elif inspect.isroutine(member) and "vdev" in getattr(member, "__module__", ""):
            yield from _of_call(f"{name}.{each}", member)


def _is_error(base: type) -> bool:
    return issubclass(base, Exception) and base.__module__ == "builtins" and base not in (Exception, BaseException)


def _of_call(name: str, function: typing.Any) -> Iterator[str]:
    """Yield a line with the required parameters, and one for each optional parameter, so that a new one adds a line."""
    needed, optional = [], []
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.name == "self":
            continue
        by_name = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if parameter.default is inspect.Parameter.empty:
            needed.append(f"{parameter.name}=" if by_name else str(parameter).partition(":")[0])
        else:
            optional.append(f"{name}(…{parameter.name}=)" + ("" if by_name else f" or as argument {place}"))
    yield f"{'await ' * inspect.iscoroutinefunction(function)}{name}({', '.join(needed)})"
    yield from optional


def _set_in_init(kind: type) -> set[str]:
    """Return the attributes that `__init__` sets."""
    if "__init__" not in vars(kind) or dataclasses.is_dataclass(kind):
        return set()
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


# --- a JSON schema ---------------------------------------------------------------------------------------------------


def of_schema(schema: Mapping[str, typing.Any]) -> Iterator[str]:
    """Yield every key by its path, with the types and constants that it accepts, its default, and if it is required."""
    yield from _of_value("", schema, schema.get("$defs", {}))


def _of_value(path: str, part: object, kinds: Mapping[str, typing.Any]) -> Iterator[str]:
    if not isinstance(part, dict):
        return
    if "$ref" in part:
        yield from _of_value(path, kinds[part["$ref"].rpartition("/")[2]], kinds)
    for way in ("anyOf", "oneOf", "allOf"):
        for each in part.get(way, ()):
            yield from _of_value(path, each, kinds)
    if "enum" in part or "const" in part:
        yield from (f"{path}: {each!r}" for each in part.get("enum", [part.get("const")]))
    elif "type" in part:
        yield f"{path or 'file'}: {part['type']}"
    if "default" in part and part["default"] is not None and not isinstance(part["default"], dict):
        yield f"{path} = {part['default']!r}"
    if part.get("required"):
        yield f"{path or 'file'} needs {', '.join(sorted(part['required']))}"
    yield from _of_members(path, part, kinds)


def _of_members(path: str, part: Mapping[str, typing.Any], kinds: Mapping[str, typing.Any]) -> Iterator[str]:
    for key, value in part.get("properties", {}).items():
        yield from _of_value(f"{path}.{key}".lstrip("."), value, kinds)
    yield from _of_value(f"{path}[]", part.get("items"), kinds)
    for each in [part.get("additionalProperties"), *part.get("patternProperties", {}).values()]:
        yield from _of_value(f"{path}.*", each, kinds)


# --- a command's help ------------------------------------------------------------------------------------------------

_NOTE = re.compile(r"\[([^\]]*(?:default: |env )[^\]]*)\]")


def of_help(command: str, text: str) -> Iterator[str]:
    """Yield the arguments of a command with their variables and defaults, from a wide `--help`."""
    section = ""
    entries: list[tuple[str, str]] = []
    for line in text.splitlines():
        if re.match(r"\S.*:$", line):
            section = line
        elif section.startswith("example"):
            break
        elif found := re.match(r" {2,4}(\S.*?)(?: {2,}(.*))?$", line) if not line.startswith(" " * 6) else None:
            entries.append((found[1], found[2] or ""))
        elif entries and section:
            entries[-1] = (entries[-1][0], f"{entries[-1][1]} {line.strip()}")
    for names, meaning in entries if section else ():
        flags = re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", names)
        value = re.sub(r"(?<![\w-])--?[A-Za-z][\w-]*,?", "", names).strip() if flags else ""
        yield from (f"{command} {flag}{' VALUE' * bool(value)}" for flag in flags or [names])
        main = next((flag for flag in flags if flag.startswith("--")), names)
        for part in (each for note in _NOTE.findall(meaning) for each in note.split("; ")):
            alternatives = part.removeprefix("env ").split(" or ") if part.startswith("env ") else [part]
            yield from (f"{command} {main}: {'env ' * part.startswith('env ')}{each}" for each in alternatives)


# --- a document ------------------------------------------------------------------------------------------------------


def of_document(name: str, value: object) -> Iterator[str]:
    """Yield every key by its path with its type. Keys that users choose (device ids, variables) are `*`."""
    match value:
        case dict():
            yield f"{name}: object"
            for key, inner in value.items():
                yield from of_document(f"{name}.{key if re.fullmatch('[a-z][A-Za-z_]*', key) else '*'}", inner)
        case list():
            yield f"{name}: list"
            for inner in value:
                yield from of_document(f"{name}[]", inner)
        case None:
            yield f"{name}: null"
        case bool():
            yield f"{name}: true or false"
        case int() | float():
            yield f"{name}: number"
        case _:
            yield f"{name}: text"


# --- the record of promises ------------------------------------------------------------------------------------------


def differences(recorded: str, promised: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the promises that are not recorded, and the recorded ones that are not kept, with instructions."""
    lines = [line for line in recorded.splitlines() if line and not line.startswith("#")]
    now = set(promised)
    kept = {line for line in lines if not line.startswith("- ")}
    wrong = [f"{line!r} is gone: keep it, or write '- {line}  # why'" for line in sorted(kept - now)]
    for line in lines:
        if line.startswith("- "):
            old, _, reason = line.removeprefix("- ").partition("  # ")
            if not reason:
                wrong.append(f"{line!r} needs a reason: '  # why'")
            if old in now:
                wrong.append(f"{old!r} is there again: remove the '- '")
    return sorted(now - kept), wrong
