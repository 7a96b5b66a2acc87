"""A file of named layouts, for the devices of an entry: which form it has, and what it says of them.

A file is read once for all entries of one reading, and its text remembered, as those of presets are.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pydantic import ValidationError

from ..errors import ConfigError
from ..model.geometry import NamedLayout
from .layouts import Subject
from .loader import Text, read_file, read_text
from .messages import ProblemReport, explained

if TYPE_CHECKING:
    from . import layouts as device_config
    from . import layouts as mig_parted

    _Form: TypeAlias = mig_parted.MigPartedFile | device_config.DeviceConfigFile


_NONE: Mapping[str, Text] = {}


class LayoutFiles:
    """The files that one reading of the configuration takes, by path. `known` are texts that stand for files."""

    def __init__(self, *, known: Mapping[str, Text] = _NONE) -> None:
        self.texts = dict(known)  # those that were asked for
        self._read: dict[str, _Form | ConfigError] = {}

    def layouts(self, path: Path, subject: Subject) -> dict[str, NamedLayout]:
        """What the file says of these devices. Raises ConfigError with every problem of the file, and HostError."""
        name = str(path)
        if name not in self._read:
            try:
                self._read[name] = self._validated(name)
            except ConfigError as bad:
                self._read[name] = bad
        form = self._read[name]
        if isinstance(form, ConfigError):
            raise form
        return form.layouts(subject)

    def _validated(self, name: str) -> "_Form":
        known = self.texts.get(name)
        document = read_text(known.text, known.file) if known else read_file(Path(name))
        (self.texts[name],) = document.texts
        from . import layouts as device_config  # few configurations name such a file
        from . import layouts as mig_parted

        model: type[_Form] = (
            device_config.DeviceConfigFile if device_config.KEY in document.root else mig_parted.MigPartedFile
        )
        report = ProblemReport(document, [*document.problems])
        try:
            form = model.model_validate(document.root)
        except ValidationError as error:
            report.problems += explained(error, document, model)
        else:
            form.check(report)
            if not report.problems:
                return form
        raise ConfigError(tuple(report.problems))
