"""Programs that a scenario runs to their end: hooks, and questions to the plugin."""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence


async def run(
    argv: Sequence[str], *, environ: Mapping[str, str] | None = None, stderr: int = subprocess.STDOUT
) -> tuple[int, bytes]:
    """The exit code of a program, and all that it printed. However this ends, nothing of its process group is left.

    It writes to a file and not to a pipe: the end of a pipe comes when whatever the program left behind has closed it,
    too, and after a cancellation nobody waits for that. Raises OSError when it cannot be run.
    """
    with tempfile.TemporaryFile() as printed:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=stderr,
            env=environ,
            start_new_session=True,
        )
        try:
            await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = await process.wait()
        printed.seek(0)
        return code, printed.read()
