"""Go's path patterns and regular expressions, in vdev's patterns.

A path pattern of Go is nearly one of ours. A regular expression becomes patterns to match and patterns to leave out:
`^video[0-9]*$` is `video*` without `video*[!0-9]*`. Whether the result is exact is told with it.

Of regular expressions, those are known that people write for device nodes: characters, sets, alternatives, and the
signs *, + and ?. Others are refused with a reason.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import TypeVar

from ..model import path_pattern

_MAX_PATTERNS = 64
_MAX_LENGTH = 200


class NotAPatternError(ValueError):
    """What no pattern can say, and why."""


def glob(pattern: str) -> str:
    """A path pattern of Go's `fs.Glob` as ours. Raises NotAPatternError."""
    result, place = [], 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        if character == "\\":
            if place == len(pattern):
                raise NotAPatternError("it ends in a backslash")
            result.append(literal(pattern[place]))
            place += 1
        elif character == "[":
            end = _set_end(pattern, place)
            body = pattern[place:end].replace("\\", "")
            result.append(f"[!{body[1:]}]" if body.startswith("^") else f"[{body}]")
            place = end + 1
        elif character == "*" and result and result[-1] == "*":
            continue  # two stars are one
        else:
            result.append("[{]" if character == "{" else character)
    return "".join(result)


def _set_end(pattern: str, start: int) -> int:
    place = start + (pattern[start : start + 1] == "^")
    first = place
    while place < len(pattern) and (pattern[place] != "]" or place == first):
        if pattern[place] in "!]" and place == first:
            raise NotAPatternError(f"Go reads the set {pattern[start - 1 :]!r} in another way")
        place += 2 if pattern[place] == "\\" else 1
    if place >= len(pattern):
        raise NotAPatternError("a '[' is never closed")
    return place


def literal(text: str) -> str:
    return "".join(f"[{each}]" if each in "*?[{" else each for each in text)


# --- do two patterns meet? -------------------------------------------------------------------------------------------


def may_meet(one: str, other: str) -> bool:
    """Whether some path may be matched by both of two of our patterns, or lie in a directory that one of them names.

    A yes too many costs little: the devices may be shared, and a comment says so.
    """
    return all(map(_names_may_meet, one.strip("/").split("/"), other.strip("/").split("/")))


def _names_may_meet(one: str, other: str) -> bool:
    """As `may_meet`, for one name of a path. Of two patterns only what stands before a wildcard is compared."""
    if _fixed(one) == one:
        return path_pattern.component_matches(other, one)
    if _fixed(other) == other:
        return path_pattern.component_matches(one, other)
    return _fixed(one).startswith(_fixed(other)) or _fixed(other).startswith(_fixed(one))


def _fixed(pattern: str) -> str:
    """What stands before the first wildcard."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]


# --- regular expressions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matching:
    """Patterns for paths, of which each is enough, with those of paths that it shall not find."""

    patterns: tuple[tuple[str, tuple[str, ...]], ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class _Atom:
    """A character of a set, or any number of them. `one` is the pattern of one, `other` of one that is not in the set.

    `other` is empty if no pattern says it.
    """

    one: str
    other: str
    is_dot: bool = False  # any character, a '/' too
    many: bool = False


_Atoms = Sequence[_Atom]
_Each = TypeVar("_Each")
_ATOM = re.compile(
    r"""(?: \\(?P<escaped>[^A-Za-z0-9]) | \\(?P<class>[dw]) | \[(?P<set>[^][\\/^][^][\\/]*)\] | (?P<dot>\.)
          | (?P<plain>[^][\\.^$*+?{}()|]) )
        (?P<sign>[*+?]?)""",
    re.VERBOSE | re.DOTALL,
)
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_"}
_GROUP = re.compile(r"\((?:\?:)?([^()]*)\)([*+?{]?)")  # one that has no other in it
_UNCLEAR = re.compile(r"\\[()|]|\[[^]]*[()|]")


def regex(text: str, directory: str) -> Matching:
    """The paths below a directory, relative to it, in which the expression is found. Raises NotAPatternError."""
    if len(text) > _MAX_LENGTH:
        raise NotAPatternError("it is too long")
    if _UNCLEAR.search(text):
        raise NotAPatternError("it has a '(', ')' or '|' that stands for itself")
    patterns: list[tuple[str, tuple[str, ...]]] = []
    exact = True
    for alternative in _few(_alternatives(text)):
        starts, ends = alternative.startswith("^"), alternative.endswith("$") and not alternative.endswith("\\$")
        for atoms in _few(_sequences(alternative[starts : len(alternative) - ends])):
            made, left_out, is_exact = _globs(atoms, starts=starts, ends=ends)
            exclude = tuple(f"{directory}/{each}" for each in left_out)
            patterns += ((f"{directory}/{each}", exclude) for each in made)
            exact = exact and is_exact
    return Matching(tuple(_few(dict.fromkeys(patterns))), exact)


def _few(found: Iterable[_Each]) -> list[_Each]:
    few = list(islice(found, _MAX_PATTERNS + 1))
    if len(few) > _MAX_PATTERNS:
        raise NotAPatternError("it has too many alternatives")
    return few


def _alternatives(text: str) -> Iterator[str]:
    """The expressions without groups that together say the same: `^tty(USB|ACM)$` is `^ttyUSB$` or `^ttyACM$`."""
    group = _GROUP.search(text)
    if group is None:
        yield from text.split("|")
        return
    if group[2] not in ("", "?"):
        raise NotAPatternError("it repeats a group")
    for each in (*group[1].split("|"), *([""] if group[2] else [])):
        yield from _alternatives(text[: group.start()] + each + text[group.end() :])


def _sequences(text: str) -> Iterator[_Atoms]:
    """What an expression without groups stands for; an atom that may be missing makes two of it."""
    choices: list[list[_Atoms]] = []
    place = 0
    while place < len(text):
        hit = _ATOM.match(text, place)
        if hit is None:
            raise NotAPatternError(f"{text[place:]!r} is too intricate")
        place = hit.end()
        atom = _atom(hit)
        many = replace(atom, many=True)
        signs: dict[str, list[_Atoms]] = {"": [[atom]], "?": [[], [atom]], "*": [[many]], "+": [[atom, many]]}
        choices.append(signs[hit["sign"]])
    for parts in product(*choices):
        yield [atom for part in parts for atom in part]


def _atom(hit: re.Match[str]) -> _Atom:
    if hit["dot"]:
        return _Atom("?", "", is_dot=True)
    if character := hit["plain"] or hit["escaped"]:
        return _Atom(literal(character), "" if character in "]!-^/" else f"[!{character}]")
    body = _CLASSES[hit["class"]] if hit["class"] else hit["set"]
    if body.startswith("!"):  # as the first one it would negate the set
        body = body[1:] + "!"
    return _Atom(f"[{body}]", f"[!{body}]")


def _globs(atoms: _Atoms, *, starts: bool, ends: bool) -> tuple[list[str], list[str], bool]:
    """Patterns of a sequence, patterns to leave out, and whether that is exact.

    `starts` and `ends` say whether it is bound to the start and the end of the path.
    """
    while atoms and not ends and atoms[-1].many:
        atoms = atoms[:-1]  # of what may follow anyway
    while atoms and not starts and atoms[0].many:
        atoms = atoms[1:]
    if not atoms:
        if starts and ends:
            raise NotAPatternError("only an empty path is like it")
        return ["**"], [], True

    parts = ["*" if atom.many else atom.one for atom in atoms]
    body = re.sub(r"\*\*+", "*", "".join(parts))
    head, tails = ("" if starts else "**/*"), ([""] if ends else ["*", "*/**"])
    takes_the_rest = atoms[-1].is_dot and atoms[-1].many  # `.*$`
    if takes_the_rest:
        atoms, tails = atoms[:-1], ["", "/**"]
    patterns = [f"{head}{body}{tail}" for tail in tails]

    many = [place for place, atom in enumerate(atoms) if atom.many]
    if any(atom.is_dot for atom in atoms):
        return patterns, [], False
    if not many:
        return patterns, [], True
    # A star of ours takes any characters. With one of them it is known between what they stand, so that a path with a
    # character that the set does not have can be left out.
    place = many[0]
    if len(many) > 1 or takes_the_rest or not (starts and ends and atoms[place].other):
        return patterns, [], False
    return patterns, ["".join((*parts[:place], f"*{atoms[place].other}*", *parts[place + 1 :]))], True


def common_name(pattern: str) -> str:
    """What the paths of a pattern have in common, for a name."""
    plain = re.sub(r"\[[^\]]*\]|[*?]", "", pattern)
    return plain.removeprefix("/dev").replace("/", "-").strip("-")
