"""All who speak to the browser of all tests hear at once that it ended."""

import asyncio
import os

from tests.kit import browser


async def test_a_browser_that_ends_keeps_nobody_waiting(tmp_path, monkeypatch):
    """The connection ends with it, also of who has asked and waits."""
    fake = tmp_path / "chromium"
    fake.write_text("#!/bin/sh\nhead -c 1 <&3 >/dev/null\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    reader, writer = await asyncio.open_unix_connection(await asyncio.to_thread(browser.begin))
    writer.write(b'{"id": 1}\0')
    async with asyncio.timeout(30):
        assert b"" == await reader.read()
    writer.close()
    await writer.wait_closed()
