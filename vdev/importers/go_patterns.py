"""Converts Go's path patterns and regular expressions to vdev's patterns.

Path patterns are nearly the same. A regular expression becomes patterns to include and to exclude: `^video[0-9]*$` is
`video*` without `video*[!0-9]*`. The result includes whether it is exact.

Only features that are common for device nodes are supported: path patterns without backslashes, and regular expressions
with characters, sets, alternatives, *, + and ?. Other patterns raise NotAPatternError with the reason.
"""

import itertools
import re
from collections.abc import Iterator

from ..model import path_pattern

_MAX_PATTERNS = 64
_UNLIKE_GO = re.compile(r"\\|\[\^?[]!]|\[[^]]*[{\[]")


class NotAPatternError(ValueError):
    """There is no equivalent pattern; the message says why."""


def glob(pattern: str) -> str:
    """Convert a pattern of Go's `fs.Glob`. Raises NotAPatternError."""
    if _UNLIKE_GO.search(pattern):
        raise NotAPatternError("it has a backslash, or a set with one of ']!{['")
    converted = re.sub(r"\*\*+", "*", pattern).replace("[^", "[!").replace("{", "[{]")
    problem, _ = path_pattern.problem(converted)
    if problem:
        raise NotAPatternError(problem)
    return converted


def literal(text: str) -> str:
    return "".join(f"[{each}]" if each in "*?[{" else each for each in text)


def fixed_part(pattern: str) -> str:
    """Return the part before the first wildcard. A path without wildcards gets a slash at its end."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return fixed if fixed != pattern else f"{pattern.rstrip('/')}/"


def common_name(pattern: str) -> str:
    """Return the literal part of a pattern, for a name."""
    plain = re.sub(r"\[[^\]]*\]|[*?]", "", pattern)
    return plain.removeprefix("/dev").replace("/", "-").strip("-")


# --- regular expressions ---------------------------------------------------------------------------------------------

_ATOM = re.compile(
    r"""(?: \\(?P<escaped>[^A-Za-z0-9]) | \[(?P<set>[^][\\/^!][^][\\/]*)\] | (?P<dot>\.)
          | (?P<plain>[^][\\.^$*+?{}()|]) )
        (?P<sign>[*+?]?)""",
    re.VERBOSE | re.DOTALL,
)
_GROUP = re.compile(r"\((?:\?:)?([^()]*)\)([*+?{]?)")  # the innermost one
_UNCLEAR = re.compile(r"\\[()|]|\[[^]]*[()|]")


def regex(text: str, directory: str) -> tuple[list[tuple[str, list[str]]], bool]:
    """Convert an expression that is searched in paths relative to a directory. Raises NotAPatternError.

    Returns patterns, each with the patterns that it excludes, and whether they match exactly the same paths.
    """
    if _UNCLEAR.search(text):
        raise NotAPatternError("it has a literal '(', ')' or '|'")
    text = text.replace(r"\d", "[0-9]").replace(r"\w", "[0-9A-Za-z_]")
    text = _ATOM.sub(lambda hit: f"(|{hit[0][:-1]})" if hit["sign"] == "?" else hit[0], text)
    alternatives = list(itertools.islice(_alternatives(text), _MAX_PATTERNS + 1))
    if len(alternatives) > _MAX_PATTERNS:
        raise NotAPatternError("it has too many alternatives")
    found: list[tuple[str, list[str]]] = []
    exact = True
    for alternative in alternatives:
        patterns, exclude, is_exact = _patterns(alternative)
        excluded = [f"{directory}/{each}" for each in exclude]
        pairs = ((f"{directory}/{each}", excluded) for each in patterns)
        found += (pair for pair in pairs if pair not in found)
        exact = exact and is_exact
    return found, exact


def _alternatives(text: str) -> Iterator[str]:
    """Yield equivalent expressions without groups: `^tty(USB|ACM)$` becomes `^ttyUSB$` and `^ttyACM$`."""
    group = _GROUP.search(text)
    if group is None:
        yield from text.split("|")
        return
    if group[2] not in ("", "?"):
        raise NotAPatternError("it repeats a group")
    for each in (*group[1].split("|"), *([""] if group[2] else [])):
        yield from _alternatives(text[: group.start()] + each + text[group.end() :])


def _patterns(text: str) -> tuple[list[str], list[str], bool]:
    """Convert an expression without alternatives. Returns patterns, excluded patterns, and whether they are exact."""
    bare = re.sub(r"^\^?\.\*|(?<!\\)\.\*\$?$", "", text)  # `.*` at the start or the end is the same as no anchor
    starts, ends = bare.startswith("^"), bare.endswith("$") and not bare.endswith("\\$")
    body = bare[starts : len(bare) - ends]
    parts: list[str] = []
    other = ""  # a character that the repeated set does not have
    place = 0
    while place < len(body):
        hit = _ATOM.match(body, place)
        if hit is None:
            raise NotAPatternError(f"{body[place:]!r} is too complex")
        place = hit.end()
        if hit["set"]:
            one, rest = f"[{hit['set']}]", f"[!{hit['set']}]"
        else:
            one, rest = "?" if hit["dot"] else literal(hit["plain"] or hit["escaped"]), ""
        if hit["sign"] != "*":
            parts.append(one)
        if hit["sign"]:
            parts.append("*")
            other = rest
    while parts and not ends and parts[-1] == "*":
        parts.pop()  # any characters may follow anyway
    while parts and not starts and parts[0] == "*":
        parts.pop(0)
    if not parts:
        if starts and ends:
            raise NotAPatternError("it matches only an empty path")
        return ["**"], [], True
    head, tails = ("" if starts else "**/*"), ([""] if ends else ["*", "*/**"])
    middle = re.sub(r"\*\*+", "*", "".join(parts))
    patterns = [f"{head}{middle}{tail}" for tail in tails]
    # A star matches any characters. If there is only one, everything around it is fixed, so a path with a character
    # outside of the set in this place can be excluded.
    if parts.count("*") == 1 and starts and ends and other:
        place = parts.index("*")
        exclude = ["".join((*parts[:place], f"*{other}*", *parts[place + 1 :]))]
        return patterns, exclude, "?" not in parts
    return patterns, [], not {"?", "*"} & set(parts)  # a dot also matches '/', and ? does not
