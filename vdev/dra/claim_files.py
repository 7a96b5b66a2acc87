"""The CDI specifications of prepared claims: one file for each, from which a runtime takes what containers get."""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from ..errors import HostError, reason_of
from ..hostfs import read_plain, write_atomic
from ..hostfs.files import names
from .claim import PreparedClaim
from .preparation import file_name

_MAX_BYTES = 2**22


class ClaimFiles:
    """The files of one driver's claims in the directory of CDI specifications. Blocks."""

    def __init__(self, directory: Path, driver: str) -> None:
        self.directory = directory
        self._driver = driver

    def path(self, uid: str) -> Path:
        return self.directory / file_name(self._driver, uid)

    def write(self, claim: PreparedClaim) -> None:
        """Let the claim's file be there, and say what it shall. Raises HostError."""
        path = self.path(claim.uid)
        text = (json.dumps(claim.document, indent=2) + "\n").encode()
        try:
            if read_plain(path, limit=_MAX_BYTES, follow=False) == text:
                return
        except HostError:  # whatever stands there is replaced
            pass
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as failed:
            raise HostError(f"cannot make the CDI directory {self.directory}: {reason_of(failed)}") from failed
        write_atomic(path, text)

    def remove(self, uid: str) -> None:
        """Remove the claim's file, if there is one. Raises HostError."""
        path = self.path(uid)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as failed:
            raise HostError(f"cannot remove {path}: {reason_of(failed)}") from failed

    def unknown(self, claims: Iterable[PreparedClaim]) -> list[str]:
        """The names of the files that are of none of these claims; what a killed process did not finish is removed."""
        prefix, suffix = file_name(self._driver, "\0").split("\0")
        known = {file_name(self._driver, each.uid) for each in claims}
        found = names(self.directory)
        for name in found:
            if name.startswith(f".{prefix}") and name.endswith(".tmp"):
                with contextlib.suppress(OSError):
                    (self.directory / name).unlink()
        return sorted(name for name in found if name.startswith(prefix) and name.endswith(suffix) and name not in known)
