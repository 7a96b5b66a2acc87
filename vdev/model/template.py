"""Texts with `{placeholders}`, parsed when the configuration is read and rendered for each device.

Placeholders: {id} {index} {name} {resource} {numa} {profile} {memory.mib} {memory.bytes} {path} {attributes.X}. `{{`
and `}}` are literal braces.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .problem import did_you_mean, listed

PLACEHOLDERS = ("id", "index", "name", "resource", "numa", "profile", "memory.mib", "memory.bytes", "path")
ATTRIBUTE = "attributes."
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class TemplateError(ValueError):
    """A template that cannot be rendered: an unknown placeholder or a stray brace."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. The i-th placeholder of `names` is between the literals i and i + 1."""

    source: str
    literals: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def is_constant(self) -> bool:
        """Whether the text is the same for every device."""
        return not self.names

    def render(self, values: Mapping[str, str]) -> str:
        """Return the text for a device. A missing attribute is empty."""
        if not self.names:
            return self.literals[0]
        parts = [self.literals[0]]
        for name, literal in zip(self.names, self.literals[1:], strict=True):
            parts += (values.get(name, ""), literal)
        return "".join(parts)


def parse(source: str) -> Template:
    """Parse a template. Raises TemplateError."""
    literals, names = [""], []
    end = 0
    for token in _TOKEN.finditer(source):
        literals[-1] += source[end : token.start()]
        end = token.end()
        if token.group() in ("{{", "}}"):
            literals[-1] += token.group()[0]
        elif token.group(1) is None:
            raise TemplateError(
                f"stray {token.group()!r} in {source!r}; write {token.group() * 2!r} for the character itself"
            )
        else:
            names.append(_known(token.group(1)))
            literals.append("")
    literals[-1] += source[end:]
    return Template(source, tuple(literals), tuple(names))


def _known(name: str) -> str:
    if name in PLACEHOLDERS or (name.startswith(ATTRIBUTE) and name != ATTRIBUTE):
        return name
    allowed = [f"{{{each}}}" for each in (*PLACEHOLDERS, "attributes.<name>")]
    raise TemplateError(f"unknown placeholder {{{name}}}; {listed(allowed, did_you_mean(name, PLACEHOLDERS))}")
