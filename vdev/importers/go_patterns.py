"""Go's path patterns and regular expressions, in vdev's patterns.

A path pattern of Go is nearly one of ours. A regular expression becomes patterns to match and patterns to leave out:
`^video[0-9]*$` is `video*` without `video*[!0-9]*`. Whether the result is exact is told with it.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from ..model import path_pattern

MAX_PATTERNS = 64
_MAX_REPEATS = 8


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

_TOKEN = re.compile(r"\*|\?|\[!?[^\]]+\]|.", re.DOTALL)
_MAX_MEETING = 400  # characters of patterns that are compared


def may_meet(one: str, other: str) -> bool:
    """Whether some path may be matched by both of two of our patterns, or lie in a directory that one of them names."""
    if max(len(one), len(other)) > _MAX_MEETING:
        return True
    one, other = one.rstrip("/"), other.rstrip("/")
    return _meet(one, other) or _meet(f"{one}/**", other) or _meet(one, f"{other}/**")


def _meet(one: str, other: str) -> bool:
    a, b = (
        [None if each == "*" else each for each in _TOKEN.findall(text.replace("**", "*"))] for text in (one, other)
    )
    deep = "**" in one + other

    @cache
    def at(i: int, j: int) -> bool:
        if i == len(a) or j == len(b):
            return all(each is None for each in (*a[i:], *b[j:]))
        if a[i] is None or b[j] is None:
            here, there = (a[i], b[j]) if a[i] is None else (b[j], a[i])
            rest = at(i + (a[i] is None), j + (a[i] is not None))
            eats = there is None or there != "/" or deep
            return rest or (eats and at(i + (a[i] is not None), j + (a[i] is None))) if here is None else False
        return _share(str(a[i]), str(b[j])) and at(i + 1, j + 1)

    return at(0, 0)


def _share(one: str, other: str) -> bool:
    if len(one) == 1 and len(other) == 1:
        return one == other or "?" in (one, other)
    return True  # a set: it may


# --- regular expressions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Atom:
    """Characters of one set, so many times. `one` is the pattern of one of them, `none` of one that is no such."""

    one: str
    none: str
    least: int = 1
    most: int | None = 1
    crosses: bool = False  # it may stand for a '/'


_Sequence = tuple[_Atom, ...]
_LITERAL = re.compile(r"[^*?\[\]]|\[[^\]]\]")  # a pattern of one written character


@dataclass(frozen=True, slots=True)
class Matching:
    """Patterns for paths, of which each is enough, with those of paths that it shall not find."""

    patterns: tuple[tuple[str, tuple[str, ...]], ...]
    exact: bool


def regex(text: str, directory: str) -> Matching:
    """The paths below a directory, relative to it, in which the expression is found. Raises NotAPatternError."""
    patterns: list[tuple[str, tuple[str, ...]]] = []
    exact = True
    for starts, ends, atoms in _Parser(text).alternatives():
        for fixed in _fixed(atoms):
            made, left_out, is_exact = _globs(fixed, starts=starts, ends=ends)
            exclude = tuple(dict.fromkeys(f"{directory}/{each}" for each in left_out))
            patterns += ((f"{directory}/{each}", exclude) for each in made)
            exact = exact and is_exact
            if len(patterns) > MAX_PATTERNS:
                raise NotAPatternError("it has too many alternatives")
    return Matching(tuple(dict.fromkeys(patterns)), exact)


def _fixed(atoms: _Sequence) -> Iterator[_Sequence]:
    """The sequences in which every atom stands once, or any number of times."""
    choices: list[list[_Sequence]] = []
    for atom in atoms:
        once = replace(atom, least=1, most=1)
        if atom.most is None:
            choices.append([(*[once] * atom.least, replace(atom, least=0, most=None))])
        elif atom.most > _MAX_REPEATS:
            raise NotAPatternError(f"it repeats something up to {atom.most} times")
        else:
            choices.append([(once,) * times for times in range(atom.least, atom.most + 1)])
    if math.prod(map(len, choices)) > MAX_PATTERNS:
        raise NotAPatternError("it has too many alternatives")
    for parts in product(*choices):
        yield tuple(atom for part in parts for atom in part)


def _globs(atoms: _Sequence, *, starts: bool, ends: bool) -> tuple[list[str], list[str], bool]:
    """Patterns of one sequence, patterns to leave out, and whether that is exact."""
    while atoms and not ends and atoms[-1].most is None:
        atoms = atoms[:-1]  # of what may follow anyway
    while atoms and not starts and atoms[0].most is None:
        atoms = atoms[1:]
    last = len(atoms) - 1
    parts = ["*" if atom.most is None else atom.one for atom in atoms]
    free = [place for place, atom in enumerate(atoms) if atom.most is None]
    limited = [place for place in free if not atoms[place].crosses]
    exclude = ["".join((*parts[:place], f"*{atoms[place].none}*", *parts[place + 1 :])) for place in limited]
    exact = all(not atom.crosses or place == last for place, atom in enumerate(atoms))
    exact = exact and all(atoms[place].none for place in limited) and (not limited or (starts and ends))
    exact = exact and (len(free) == 1 or all(_is_delimited(atoms, place) for place in limited))
    if not (atoms or starts or ends):
        return ["**"], [], True
    head = "" if starts else "**/*"
    tails = [""] if ends else ["*", "*/**"]
    if ends and atoms and atoms[-1].crosses and atoms[-1].most is None:
        tails = ["", "/**"]
    patterns = [_tidy(f"{head}{''.join(parts)}{tail}") for tail in tails]
    return patterns, [_tidy(each) for each in exclude] if exact else [], exact


def _is_delimited(atoms: _Sequence, place: int) -> bool:
    """Whether it is certain where a free atom ends: at the end, or at a character that comes but once from there on."""
    if place + 1 == len(atoms):
        return True
    after, rest = atoms[place + 1], atoms[place + 2 :]
    is_one = after.most == 1 and _LITERAL.fullmatch(after.one) is not None
    return is_one and not any(_may_be(after.one.strip("[]"), atom) for atom in (atoms[place], *rest))


def _may_be(character: str, atom: _Atom) -> bool:
    if _LITERAL.fullmatch(atom.one):
        return atom.one.strip("[]") == character
    return path_pattern.component_matches(atom.one, character)


def _tidy(pattern: str) -> str:
    return re.sub(r"\*\*+(?!/)", "*", pattern) if not pattern.endswith("/**") else _tidy(pattern[:-3]) + "/**"


class _Parser:
    """The part of Go's expressions that patterns can say: characters, sets, groups, alternatives, repetitions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def alternatives(self) -> list[tuple[bool, bool, _Sequence]]:
        """What the whole expression may be: whether it is bound to the start and to the end, and its atoms."""
        if len(self._text) > 200:
            raise NotAPatternError("it is too long")
        found = []
        for branch in self._top():
            starts, ends = branch.startswith("^"), _is_anchored_end(branch)
            inner = _Parser(branch[starts : len(branch) - ends])
            sequences = inner._branches()
            if inner._place < len(inner._text):
                raise NotAPatternError(f"it has a {inner._text[inner._place]!r} that closes nothing")
            found += [(starts, ends, sequence) for sequence in sequences]
        return found

    def _top(self) -> Iterator[str]:
        """The alternatives that stand in no group."""
        depth, start, place, text = 0, 0, 0, self._text
        while place < len(text):
            if text[place] == "\\":
                place += 1
            elif text[place] == "[":
                place = max(text.find("]", place + 2), place)
            elif text[place] in "()":
                depth += 1 if text[place] == "(" else -1
            elif text[place] == "|" and depth == 0:
                yield text[start:place]
                start = place + 1
            place += 1
        yield text[start:]

    def _branches(self) -> list[_Sequence]:
        found: list[_Sequence] = []
        current: list[_Sequence] = [()]
        while self._place < len(self._text) and self._text[self._place] != ")":
            if self._text[self._place] == "|":
                self._place += 1
                found += current
                current = [()]
                continue
            pieces = self._piece()
            current = [(*before, *piece) for before in current for piece in pieces]
            if len(current) + len(found) > MAX_PATTERNS:
                raise NotAPatternError("it has too many alternatives")
        return found + current

    def _piece(self) -> list[_Sequence]:
        character = self._text[self._place]
        self._place += 1
        if character == "(":
            inner = self._group()
            least, most = self._repeats()
            if (least, most) == (1, 1):
                return inner
            if (least, most) == (0, 1):
                return [(), *inner]
            if len(inner) != 1 or len(inner[0]) != 1 or (inner[0][0].least, inner[0][0].most) != (1, 1):
                raise NotAPatternError("it repeats a group")
            atom = inner[0][0]
        else:
            atom = self._atom(character)
            least, most = self._repeats()
        return [(replace(atom, least=least, most=most),)]

    def _group(self) -> list[_Sequence]:
        if self._text[self._place : self._place + 1] == "?":
            if self._text[self._place : self._place + 2] != "?:":
                raise NotAPatternError("it has a group with options")
            self._place += 2
        inner = self._branches()
        if self._text[self._place : self._place + 1] != ")":
            raise NotAPatternError("a group is never closed")
        self._place += 1
        return inner

    def _atom(self, character: str) -> _Atom:
        if character == ".":
            return _Atom("?", "", crosses=True)
        if character == "[":
            return self._set()
        if character == "\\":
            escaped = self._text[self._place : self._place + 1]
            self._place += 1
            if escaped == "d":
                return _Atom("[0-9]", "[!0-9]")
            if escaped == "w":
                return _Atom("[0-9A-Za-z_]", "[!0-9A-Za-z_]")
            if not escaped or escaped.isalnum():
                raise NotAPatternError(f"it has a \\{escaped}")
            character = escaped
        elif character in "^$*+?{":
            raise NotAPatternError(f"it has a {character!r} in its middle")
        return _Atom(literal(character), f"[!{character}]" if character not in "]!-^" else "")

    def _set(self) -> _Atom:
        end = self._text.find("]", self._place + 1 + self._text.startswith("^", self._place))
        body = self._text[self._place : end]
        if end < 0 or "[" in body or "\\" in body or "/" in body or body in ("", "^"):
            raise NotAPatternError("it has a set that is too intricate")
        self._place = end + 1
        if body.startswith("^"):
            return _Atom(f"[!{body[1:]}]", f"[{body[1:]}]", crosses=True)
        if body.startswith("!"):
            body = body[1:] + "!"
        return _Atom(f"[{body}]", f"[!{body}]")

    def _repeats(self) -> tuple[int, int | None]:
        sign = self._text[self._place : self._place + 1]
        counts: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if sign in counts:
            self._place += 1
            found = counts[sign]
        elif sign == "{" and (hit := re.compile(r"\{(\d{1,3})(,(\d{1,3})?)?\}").match(self._text, self._place)):
            self._place = hit.end()
            least = int(hit[1])
            found = (least, least if hit[2] is None else (int(hit[3]) if hit[3] else None))
        else:
            return 1, 1
        if self._text[self._place : self._place + 1] == "?":
            self._place += 1  # as little as it can: of no matter here
        if self._text[self._place : self._place + 1] in ("*", "+"):
            raise NotAPatternError("it repeats a repetition")
        if found[1] is not None and found[1] < found[0]:
            raise NotAPatternError("a repetition ends before it begins")
        if found[0] > _MAX_REPEATS:
            raise NotAPatternError(f"it repeats something {found[0]} times")
        return found


def _is_anchored_end(branch: str) -> bool:
    backslashes = len(branch) - 1 - len(branch[:-1].rstrip("\\"))
    return branch.endswith("$") and backslashes % 2 == 0


def common_name(pattern: str) -> str:
    """What the paths of a pattern have in common, for a name."""
    plain = re.sub(r"\[[^\]]*\]|[*?]", "", pattern)
    return plain.removeprefix("/dev").replace("/", "-").strip("-")
