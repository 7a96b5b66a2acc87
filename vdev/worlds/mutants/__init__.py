"""Bad behaviours, put into the code of this process: worlds that do not notice them would be worth nothing.

`known` are what other device plugins do wrong, `code` changes our own code as a slip of the hand would.
"""

import contextlib
from collections.abc import Iterator

from . import code
from .bad_drivers import BAD_DRIVERS
from .known import KNOWN

BAD = {**KNOWN, **BAD_DRIVERS}


@contextlib.contextmanager
def applied(name: str) -> Iterator[None]:
    """Behave so, while the context lasts."""
    with code.mutant(name).applied() if code.is_one(name) else BAD[name]():
        yield


def described(name: str) -> str:
    """A mutant in words."""
    return code.mutant(name).described() if code.is_one(name) else name
