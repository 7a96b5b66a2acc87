"""Limits that the long-running commands set for their own process."""

import contextlib
import resource

MOST_FILES = 65536
"""Far more than is ever needed. A container's limit may be a thousand million, which the programs of probes and actions
inherit; some programs close every number up to their limit, one by one.
"""


def raise_open_files() -> None:
    """Let the process open as many files as the system allows it, but no more than MOST_FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # not permitted: the old limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
