"""What is imported when it is used: until then nothing of it is there, and then all of it is."""

import json
import subprocess
import sys

import pytest

from vdev.deferred import DEFERRED

BEFORE = "import sys; from vdev import deferred; deferred.defer();"
SAY = "; import json; print(json.dumps([n for n in ('_ssl', 'email', '_bz2', '_hashlib') if sys.modules.get(n)]))"


def said(program):
    """What it prints at the end, as JSON."""
    done = subprocess.run([sys.executable, "-c", BEFORE + program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_event_loop_with_sockets_uses_nothing_of_it(tmp_path):
    """Unix sockets by streams and by the loop's own calls, a thread, archives that are not written."""
    program = f"""
import asyncio, shutil, socket
async def main():
    path = {str(tmp_path / "s")!r}
    server = await asyncio.start_unix_server(lambda reader, writer: writer.close(), path)
    reader, writer = await asyncio.open_unix_connection(path)
    assert await reader.read() == b""
    loop, own = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
    own.setblocking(False)
    await loop.sock_connect(own, path)
    own.close()
    server.close()
    await asyncio.to_thread(print)
asyncio.run(main())
"""
    assert [] == said(program + SAY[2:])


@pytest.mark.parametrize(
    "use",
    [
        "import ssl; assert issubclass(ssl.SSLContext, ssl._ssl._SSLContext)",
        "from ssl import create_default_context; create_default_context()",
        "import asyncio.sslproto; import ssl; assert asyncio.sslproto.SSLAgainErrors[0] is ssl.SSLWantReadError",
    ],
)
def test_what_is_used_is_the_real_one(use):
    """However it is asked for."""
    assert "_ssl" in said(use + SAY)


def test_asyncio_refuses_sockets_of_ssl_as_ever():
    """It compares a socket with a class of ssl, though it imported asyncio before."""
    program = """
import asyncio, socket, ssl
async def main():
    ours, theirs = socket.socketpair()
    wrapped = ssl.create_default_context().wrap_socket(ours, server_hostname="x", do_handshake_on_connect=False)
    wrapped.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_recv(wrapped, 1)
    except TypeError as error:
        print(json.dumps(str(error)))
import json
asyncio.run(main())
"""
    assert "SSLSocket" in said(program)


def test_functions_that_are_imported_by_name_are_the_real_ones():
    """`from importlib.metadata import entry_points` imports nothing; the call does."""
    program = """
from importlib.metadata import entry_points
had = "email" in sys.modules
names = sorted(each.name for each in entry_points(group="console_scripts"))
import importlib.metadata, json
same = sorted(each.name for each in importlib.metadata.entry_points(group="console_scripts"))
print(json.dumps([had, names == same, bool(names)]))
"""
    assert [False, True, True] == said(program)


def test_an_attribute_that_there_is_not_is_missed_as_ever():
    """With the error that the module itself gives."""
    program = """
import json, ssl
try:
    ssl.nonsense
except AttributeError as error:
    print(json.dumps(str(error)))
"""
    assert "module 'ssl' has no attribute 'nonsense'" == said(program)


@pytest.mark.parametrize("name", DEFERRED)
def test_what_is_imported_already_stays(name):
    """Nothing is put in the place of a module that somebody has."""
    module = f"importlib.import_module({name!r})"
    program = (
        f"import sys, importlib; from vdev import deferred; real = {module}; deferred.defer(); assert {module} is real"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
