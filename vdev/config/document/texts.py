"""What a configuration was read from, as values: enough to load it once more, whatever became of the files."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Text:
    """The content of a file, with the name under which problems are told."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Texts:
    """The configuration files, in order, and what they took of the user's own: presets by name, layouts by path."""

    files: tuple[Text, ...] = ()
    presets: Mapping[str, Text] = field(default_factory=dict)
    layouts: Mapping[str, Text] = field(default_factory=dict)

    @property
    def taken(self) -> frozenset[str]:
        """The paths of the files that the configuration files took."""
        return frozenset(each.file for each in (*self.presets.values(), *self.layouts.values()))
