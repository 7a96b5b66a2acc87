"""What all workers of a run need and one of them makes: programs that take long, and always say the same."""

import atexit
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

_SHARED = "VDEV_TESTS_ONCE"


def share() -> None:
    """Let all processes that this one starts make things once; without it each makes its own."""
    place = os.environ[_SHARED] = tempfile.mkdtemp(prefix="vd-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)


def once(name: str, make: Callable[[], Any]) -> Any:
    """What is made, which JSON can say; the name says all that it depends on.

    Who comes while another one makes it waits for that. What fails is made again by the next one.
    """
    place = os.environ.get(_SHARED)
    if place is None:
        return make()
    with (Path(place) / sha256(name.encode()).hexdigest()).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if said := file.read():
            return json.loads(said)
        made = make()
        file.write(json.dumps(made))
        return made
