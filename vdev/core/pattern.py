"""Path patterns: what they match, and the text that their wildcards stood for.

`*` is any run of characters but `/`, `?` one of them, `[abc]`, `[a-z]` and `[!abc]` one of a set, `**` as a whole
component any number of directories. A leading dot is matched only by a written dot. To mean a wildcard's own character,
put it in brackets: `[*]`. Pure: walking the file system is for `discovery`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_WILD = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")
_BRACES = re.compile(r"\{[^{}]*,[^{}]*\}")  # {a,b} of shells
_NOTHING = "((?!))"
RECURSIVE = "**"


def natural_key(text: str) -> tuple[tuple[int, str], ...]:
    """Sorts numbers by their value, `ttyUSB2` before `ttyUSB10`, and the rest as text."""
    parts = _DIGITS.split(text)
    return tuple((int(part) if place % 2 else -1, part) for place, part in enumerate(parts))


def has_wildcard(component: str) -> bool:
    """Whether a component of a pattern needs a directory to be listed."""
    return bool(_WILD.search(component))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed absolute path pattern."""

    text: str
    components: tuple[str, ...]

    @property
    def is_literal(self) -> bool:
        """Whether it names one path and no other."""
        return not any(has_wildcard(component) for component in self.components)

    @property
    def directory(self) -> str:
        """The deepest directory that every match is below."""
        fixed = []
        for component in self.components[:-1]:
            if has_wildcard(component):
                break
            fixed.append(component)
        return "/" + "/".join(fixed)

    def captures(self, path: str) -> tuple[str, ...] | None:
        """What each wildcard stood for in a path that matches, from left to right; None when it does not match."""
        found = _path_regex(self.components).fullmatch(path)
        return None if found is None else tuple(found.groups(default=""))


@lru_cache(maxsize=1024)
def parse(text: str) -> Pattern:
    """A pattern from its text."""
    return Pattern(text, tuple(component for component in text.split("/") if component))


def problem(text: str) -> tuple[str, str]:
    """Why a pattern cannot match what was meant by it, and what to write; two empty strings when nothing is wrong."""
    plain = ""  # what stands outside sets
    for component in text.split("/"):
        place = 0
        while place < len(component):
            if component[place] != "[":
                plain += component[place]
                place += 1
                continue
            end = _set_end(component, place + 1)
            if end < 0:
                return f"the '[' in {component!r} is never closed", "write [[] for the character itself"
            if _set(component[place + 1 : end]) == _NOTHING:
                written = component[place : end + 1]
                return f"{written} matches nothing: its range runs backwards", "write the lower character first"
            place = end + 1
        plain += "/"
    if _BRACES.search(plain):
        return (
            f"braces are no wildcards, so {text!r} names one odd path",
            "write each alternative out, or [{] for a brace",
        )
    return "", ""


def matches_any(path: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns, given as texts, matches the path."""
    return any(parse(pattern).captures(path) is not None for pattern in patterns)


@lru_cache(maxsize=1024)
def component_regex(component: str) -> re.Pattern[str]:
    """What a component matches, a group for each wildcard."""
    return re.compile(_translate(component), re.DOTALL)


@lru_cache(maxsize=1024)
def _path_regex(components: tuple[str, ...]) -> re.Pattern[str]:
    last = len(components) - 1
    parts = []
    for place, component in enumerate(components):
        if component != RECURSIVE:
            parts.append("/" + _translate(component))
        elif place == last:
            parts.append(r"((?:/(?!\.)[^/]+)+)")
        else:
            parts.append(r"((?:/(?!\.)[^/]+)*)")
    return re.compile("".join(parts) or "/", re.DOTALL)


def _translate(component: str) -> str:
    """The regular expression of one component."""
    parts = [r"(?!\.)"] if component[:1] in "*?[" else []
    place = 0
    while place < len(component):
        character = component[place]
        place += 1
        if character == "*":
            if component[place - 2 : place - 1] != "*" or place < 2:  # noqa: PLR2004 - two stars are one
                parts.append("([^/]*)")
        elif character == "?":
            parts.append("([^/])")
        elif character == "[" and (end := _set_end(component, place)) > 0:
            parts.append(_set(component[place:end]))
            place = end + 1
        else:
            parts.append(re.escape(character))
    return "".join(parts)


def _set_end(component: str, start: int) -> int:
    """Where the set that began before `start` ends, or -1 when its bracket is a plain character."""
    first = start + 1 if component[start : start + 1] == "!" else start
    return component.find("]", first + 1)  # a bracket in first place belongs to the set


def _set(body: str) -> str:
    negated = body.startswith("!")
    inner = body[negated:]
    ranges = []
    place = 0
    while place < len(inner):
        if inner[place + 1 : place + 2] == "-" and place + 2 < len(inner):
            low, high = inner[place], inner[place + 2]
            if low <= high:
                ranges.append(f"{re.escape(low)}-{re.escape(high)}")
            place += 3
        else:
            ranges.append(re.escape(inner[place]))
            place += 1
    if not ranges:
        return "([^/])" if negated else _NOTHING  # only empty ranges: everything, or nothing
    text = "".join(ranges)
    if len(inner) == 1 and not negated:
        return re.escape(inner)  # `[*]` is a written character, no wildcard
    return f"([^/{text}])" if negated else f"((?!/)[{text}])"
