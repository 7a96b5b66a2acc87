"""Go's path patterns and regular expressions as vdev's patterns.

Path patterns are nearly the same. A regular expression becomes patterns to include and to exclude: `^video[0-9]*$` is
`video*` without `video*[!0-9]*`. The result says whether it is exact.

Regular expressions may use the constructs that are common for device nodes: characters, sets, alternatives, *, + and ?.
Others are refused with a reason.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_MAX_PATTERNS = 64
_MAX_LENGTH = 200


class NotAPatternError(ValueError):
    """No pattern is equivalent; the message says why."""


_GLOB = re.compile(
    r"\\(?P<escaped>.) | \[(?P<not>\^?)(?P<set>(?:\\.|[^]\\])+)\] | (?P<stars>\*+) | (?P<other>.)", re.X | re.S
)


def glob(pattern: str) -> str:
    """Convert a pattern of Go's `fs.Glob`. Raises NotAPatternError."""
    result = []
    for hit in _GLOB.finditer(pattern):
        if hit["escaped"]:
            result.append(literal(hit["escaped"]))
        elif hit["set"]:
            body = hit["set"].replace("\\", "")
            if body[0] in "!]":
                raise NotAPatternError(f"Go interprets the set {hit[0]!r} in another way")
            result.append(f"[{'!' if hit['not'] else ''}{body}]")
        elif hit["stars"]:
            result.append("*")
        elif hit["other"] in "[\\":
            raise NotAPatternError("a '[' is never closed, or it ends in a backslash")
        else:
            result.append("[{]" if hit["other"] == "{" else hit["other"])
    return "".join(result)


def literal(text: str) -> str:
    return "".join(f"[{each}]" if each in "*?[{" else each for each in text)


def fixed_part(pattern: str) -> str:
    """The part before the first wildcard. A path without a wildcard gets a slash at its end."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return fixed if fixed != pattern else f"{pattern.rstrip('/')}/"


# --- regular expressions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matching:
    """Patterns, of which a path must match one."""

    patterns: tuple[tuple[str, tuple[str, ...]], ...]  # each with the patterns that it excludes
    exact: bool


class _Atom(NamedTuple):
    """A character of a set, or any number of them."""

    one: str  # the pattern of a character in the set
    other: str  # the pattern of a character that is not in the set; empty if there is none
    many: bool = False


_ATOM = re.compile(
    r"""(?: \\(?P<escaped>[^A-Za-z0-9]) | \\(?P<class>[dw]) | \[(?P<set>[^][\\/^!][^][\\/]*)\] | (?P<dot>\.)
          | (?P<plain>[^][\\.^$*+?{}()|]) )
        (?P<sign>[*+?]?)""",
    re.VERBOSE | re.DOTALL,
)
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_"}
_GROUP = re.compile(r"\((?:\?:)?([^()]*)\)([*+?{]?)")  # the innermost one
_UNCLEAR = re.compile(r"\\[()|]|\[[^]]*[()|]")


def regex(text: str, directory: str) -> Matching:
    """Convert an expression that is searched in paths relative to a directory. Raises NotAPatternError."""
    if len(text) > _MAX_LENGTH:
        raise NotAPatternError("it is too long")
    if _UNCLEAR.search(text):
        raise NotAPatternError("it has a literal '(', ')' or '|'")
    patterns: dict[tuple[str, tuple[str, ...]], None] = {}
    exact = True
    optional = _ATOM.sub(lambda hit: f"(|{hit[0][:-1]})" if hit["sign"] == "?" else hit[0], text)
    for number, alternative in enumerate(_alternatives(optional)):
        if number >= _MAX_PATTERNS:
            raise NotAPatternError("it has too many alternatives")
        # A final ".*$" is the same as no "$".
        bare = re.sub(r"(?<!\\)\.\*\$$", "", alternative)
        starts, ends = bare.startswith("^"), bare.endswith("$") and not bare.endswith("\\$")
        made, left_out, is_exact = _globs(_sequence(bare[starts : len(bare) - ends]), starts=starts, ends=ends)
        exclude = tuple(f"{directory}/{each}" for each in left_out)
        patterns |= {(f"{directory}/{each}", exclude): None for each in made}
        exact = exact and is_exact
    return Matching(tuple(patterns), exact)


def _alternatives(text: str) -> Iterator[str]:
    """Equivalent expressions without groups: `^tty(USB|ACM)$` is `^ttyUSB$` or `^ttyACM$`."""
    group = _GROUP.search(text)
    if group is None:
        yield from text.split("|")
        return
    if group[2] not in ("", "?"):
        raise NotAPatternError("it repeats a group")
    for each in (*group[1].split("|"), *([""] if group[2] else [])):
        yield from _alternatives(text[: group.start()] + each + text[group.end() :])


def _sequence(text: str) -> list[_Atom]:
    """The atoms of an expression without groups and optional atoms."""
    found: list[_Atom] = []
    place = 0
    while place < len(text):
        hit = _ATOM.match(text, place)
        if hit is None:
            raise NotAPatternError(f"{text[place:]!r} is too complex")
        place = hit.end()
        if hit["dot"]:
            atom = _Atom("?", "")
        elif character := hit["plain"] or hit["escaped"]:
            atom = _Atom(literal(character), "" if character in "]!-^/" else f"[!{character}]")
        else:
            body = _CLASSES[hit["class"]] if hit["class"] else hit["set"]
            atom = _Atom(f"[{body}]", f"[!{body}]")
        found += [atom] if hit["sign"] != "*" else []
        found += [atom._replace(many=True)] if hit["sign"] else []
    return found


def _globs(atoms: Sequence[_Atom], *, starts: bool, ends: bool) -> tuple[list[str], list[str], bool]:
    """The patterns of a sequence, the patterns that they exclude, and whether the result is exact.

    `starts` and `ends` say whether the sequence is anchored at the start and the end of the path.
    """
    while atoms and not ends and atoms[-1].many:
        atoms = atoms[:-1]  # anything may follow anyway
    while atoms and not starts and atoms[0].many:
        atoms = atoms[1:]
    if not atoms:
        if starts and ends:
            raise NotAPatternError("it matches only an empty path")
        return ["**"], [], True
    parts = ["*" if atom.many else atom.one for atom in atoms]
    body = re.sub(r"\*\*+", "*", "".join(parts))
    head, tails = ("" if starts else "**/*"), ([""] if ends else ["*", "*/**"])
    patterns = [f"{head}{body}{tail}" for tail in tails]
    many = [place for place, atom in enumerate(atoms) if atom.many]
    if any(atom.one == "?" for atom in atoms):
        return patterns, [], False  # a dot also matches '/', and ? does not
    if not many:
        return patterns, [], True
    # A star matches any characters. If there is only one, everything around it is fixed, so a path with a character
    # outside of the set in this place can be excluded.
    place = many[0]
    if len(many) > 1 or not (starts and ends and atoms[place].other):
        return patterns, [], False
    return patterns, ["".join((*parts[:place], f"*{atoms[place].other}*", *parts[place + 1 :]))], True


def common_name(pattern: str) -> str:
    """The literal part of a pattern, for a name."""
    plain = re.sub(r"\[[^\]]*\]|[*?]", "", pattern)
    return plain.removeprefix("/dev").replace("/", "-").strip("-")
