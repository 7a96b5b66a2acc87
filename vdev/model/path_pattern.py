"""Path patterns: whether a path matches, and the text that each wildcard matches. `discovery` walks the file system.

`*` matches any characters except `/`; `?` matches one of them; `[abc]`, `[a-z]` and `[!abc]` match one character of a
set; `**` as a whole component matches any number of directories. Only a dot in the pattern matches a leading dot. To
match a literal wildcard character, put it in brackets: `[*]`. Wildcards are greedy from left to right, as in regular
expressions.
"""

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

_WILD = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")
_BRACES = re.compile(r"\{[^{},]*,[^{}]*\}")  # {a,b} of shells
_TOKEN = re.compile(r"\[(?P<set>(?:!.|[^!])[^\]]*)\]|(?P<stars>\*+)|.", re.DOTALL)
"""A part of a component: a set, in which a leading bracket is a plain character; stars; or one character."""
_PARTS = re.compile(r".-.|.", re.DOTALL)  # of a set
_NOTHING = "((?!))"
RECURSIVE = "**"


def natural_key(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that compares numbers by value: `ttyUSB2` is before `ttyUSB10`."""
    parts = _DIGITS.split(text)
    return tuple((int(part) if place % 2 else -1, part) for place, part in enumerate(parts))


def has_wildcard(component: str) -> bool:
    """Whether a component of a pattern has a wildcard, so that the directory must be listed."""
    return bool(_WILD.search(component))


@dataclass(frozen=True)
class PathPattern:
    """A parsed absolute path pattern."""

    text: str
    components: tuple[str, ...]

    @cached_property
    def is_literal(self) -> bool:
        """Whether the pattern has no wildcards and matches only one path."""
        return not any(has_wildcard(component) for component in self.components)

    @cached_property
    def directory(self) -> str:
        """The deepest directory that contains every match."""
        return "/" + "/".join(self.components[: len(self.components) - len(self.below)])

    @cached_property
    def below(self) -> tuple[str, ...]:
        """The components below `directory`."""
        fixed = itertools.takewhile(lambda component: not has_wildcard(component), self.components[:-1])
        return self.components[sum(1 for _ in fixed) :]

    def captures(self, path: str) -> tuple[str, ...] | None:
        """Return the text of each wildcard from left to right, or None if the path does not match."""
        found = _path_regex(self.components).fullmatch(path)
        return None if found is None else found.groups()


@lru_cache(maxsize=1024)
def parse(text: str) -> PathPattern:
    return PathPattern(text, tuple(component for component in text.split("/") if component))


def problem(text: str, *, is_path: bool = True) -> tuple[str, str]:
    """Return why a pattern is probably a mistake, and what to write instead; or two empty strings."""
    plain = ""  # the pattern without its sets
    for component in text.split("/") if is_path else [text]:
        for token in _TOKEN.finditer(component):
            body = token["set"]
            if body is None:
                plain += token[0]
            if token[0] == "[":
                return f"the '[' in {component!r} is never closed", "write [[] for the character itself"
            if body and _set(body) == _NOTHING:
                return f"[{body}] matches nothing: its range is backwards", "write the lower character first"
            if body and body[:1] == "^" and body[1:]:
                hint = f"write [!{body[1:]}] for every other character, or [{body[1:]}^] if '^' is meant"
                return f"[{body}] matches what [{body[1:]}] matches, and '^'", hint
        plain += "/"
    if _BRACES.search(plain):
        matched = "a path with" if is_path else "text with"
        return (
            f"braces are not wildcards, so {text!r} matches only {matched} braces in its name",
            "write a separate pattern for each alternative, or [{] for a brace",
        )
    return "", ""


def matches_any(path: str, patterns: Iterable[str]) -> bool:
    return any(parse(pattern).captures(path) is not None for pattern in patterns)


def component_matches(component: str, name: str) -> bool:
    return _component_regex(component).fullmatch(name) is not None


# --- regular expressions ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _component_regex(component: str) -> re.Pattern[str]:
    return re.compile(_expression(component))


@lru_cache(maxsize=1024)
def _path_regex(components: tuple[str, ...]) -> re.Pattern[str]:
    """Return the regular expression of a whole path, with a group for each wildcard."""
    parts = [r"((?:/(?!\.)[^/]+)*)" if each == RECURSIVE else f"/{_expression(each)}" for each in components]
    if components[-1:] == (RECURSIVE,):
        parts[-1] = r"((?:/(?!\.)[^/]+)+)"  # at the end, it matches at least one component
    return re.compile("".join(parts) or "/")


def _expression(component: str) -> str:
    found = r"(?!\.)" if component[:1] in ("*", "?", "[") else ""
    for token in _TOKEN.finditer(component):
        if token["set"] is not None:
            found += _set(token["set"])
        elif token["stars"]:
            found += "([^/]*)"
        else:
            found += "([^/])" if token[0] == "?" else re.escape(token[0])
    return found


def _set(body: str) -> str:
    """Return the regular expression of a set, such as `a-z` or `!abc`."""
    negated = body.startswith("!")
    inner = body[negated:]
    if len(inner) == 1 and not negated:
        return re.escape(inner)  # `[*]` is a literal character
    parts = [
        re.escape(part[0]) + (f"-{re.escape(part[2])}" if part[1:] else "")
        for part in _PARTS.findall(inner)
        if part[0] <= part[-1]
    ]
    if not parts:
        return "([^/])" if negated else _NOTHING  # all ranges are empty: matches any character or nothing
    text = "".join(parts)
    return f"([^/{text}])" if negated else f"((?!/)[{text}])"
