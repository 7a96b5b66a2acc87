"""A large document as JSON, a piece at a time: `json.dumps` holds the interpreter until it is done."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_ITEMS = 100  # of a list, in one piece


@dataclass(frozen=True, slots=True)
class Json:
    """A part of a document that was encoded before."""

    pieces: Sequence[bytes]


def json_pieces(document: Any, separators: tuple[str, str] = (", ", ": "), *, spent: bool = False) -> Sequence[bytes]:
    """The pieces, one after the other what `json.dumps` makes.

    A `spent` document is nobody else's and of no use afterwards: its lists are emptied on the way, so that their memory
    is given back in pieces, too.
    """
    return [*_pieces(document, json.JSONEncoder(separators=separators), spent=spent)]


def _pieces(value: Any, encoder: json.JSONEncoder, *, spent: bool) -> Iterator[bytes]:
    comma, colon = encoder.item_separator.encode(), encoder.key_separator.encode()
    match value:
        case Json(pieces):
            yield from pieces
        case dict():
            before = b"{"
            for key, each in value.items():
                yield before + encoder.encode(str(key)).encode() + colon
                yield from _pieces(each, encoder, spent=spent)
                before = comma
            yield b"}" if value else b"{}"
        case list() if value:
            before = b"["
            for some in _taken(value) if spent else _some(value):
                if any(map(_is_long, some)):
                    for each in some:
                        yield before
                        yield from _pieces(each, encoder, spent=spent)
                        before = comma
                else:
                    yield before + encoder.encode(some)[1:-1].encode()
                    before = comma
            yield b"]"
        case _:
            yield encoder.encode(value).encode()


def _some(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), _ITEMS):
        yield items[start : start + _ITEMS]


def _taken(items: list[Any]) -> Iterator[list[Any]]:
    items.reverse()
    while items:
        some = items[: -_ITEMS - 1 : -1]
        del items[-_ITEMS:]
        yield some


def _is_long(value: Any) -> bool:
    """Whether it is or has a long list."""
    members = value.values() if isinstance(value, dict) else (value,)
    return any(isinstance(each, list) and len(each) > _ITEMS for each in members)
