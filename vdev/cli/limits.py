"""The limits of the process that the commands which serve set for themselves."""

import contextlib
import resource

MOST_FILES = 65536
"""Far more than is ever needed. Containers may have a limit of a thousand million, and the commands of probes and
actions, which inherit it, include programs that close every number below it one by one.
"""


def raise_open_files() -> None:
    """Let the process open as many files as the system allows it, but no more than MOST_FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # forbidden: work with what there is
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
