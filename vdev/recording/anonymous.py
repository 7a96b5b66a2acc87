"""Other names for what tells a node from all others: the same for the same, and of the same look.

A salt keeps anybody from trying out serial numbers. The same salt makes the same names, so that two recordings of a
node can be compared.
"""

import hashlib
import re
import uuid

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9]+")


class Mask:
    """Hides identities; with no salt it hides nothing."""

    def __init__(self, salt: str = "") -> None:
        self._salt = salt

    @property
    def hides(self) -> bool:
        """Whether anything is another name."""
        return bool(self._salt)

    def identity(self, text: str, keep: str = "") -> str:
        """Another name for an id, a serial number or a place.

        A beginning `keep` stays, and so does the look of a UUID and of a PCI address.
        """
        if not self._salt or not text:
            return text
        digest = hashlib.blake2b(text.encode(), key=self._salt.encode()[:64], digest_size=16).digest()
        if hit := _UUID.search(text):
            return f"{text[: hit.start()]}{uuid.UUID(bytes=digest, version=5)}{text[hit.end() :]}"
        if hit := _ADDRESS.search(text):
            place = f"{0x1000 + digest[0] * 16:04x}:{digest[1]:02x}:{digest[2] % 32:02x}.{digest[3] % 8}"
            return f"{self._kept(text[: hit.start()])}{place}{self._kept(text[hit.end() :])}"
        rest = text.removeprefix(keep) if keep else text
        return f"{keep if rest != text else ''}{digest.hex()[:12]}"

    @staticmethod
    def _kept(text: str) -> str:
        """What stands around an address: its signs, and letters, which name a kind."""
        return _WORD.sub(lambda hit: hit[0] if hit[0].isalpha() else "x", text)
