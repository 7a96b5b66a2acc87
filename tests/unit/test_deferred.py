"""What is imported when it is used: until then nothing of it is there, and then all of it is."""

import importlib
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


@pytest.mark.parametrize("name", sorted(DEFERRED))
def test_every_name_is_one_of_the_module(name):
    """Another version of a library may have others: what stands for nothing is taken away."""
    module = importlib.import_module(name)
    assert not [each for each in DEFERRED[name] if not hasattr(module, each)]


def test_versions_are_those_of_the_packages():
    """Found without what reads all that a package says of itself."""
    program = """
from importlib.metadata import version
found = {name: version(name) for name in ("httpx2", "pydantic-core", "PyYAML")}
had = "email" in sys.modules
import importlib.metadata, json
try:
    version("no-such-package")
except importlib.metadata.PackageNotFoundError:
    missed = True
print(json.dumps([had, missed, found == {name: importlib.metadata.distribution(name).version for name in found}]))
"""
    assert [False, True, True] == said(program)


@pytest.mark.parametrize(
    "use",
    [
        "assert isinstance(Decimal('1.5'), Decimal) and not isinstance(1, Decimal)",
        "import decimal; assert Decimal('0.1') + 1 == decimal.Decimal('1.1')",
        "assert Decimal.from_float(0.5) == 0.5",
        "exec('class Own(Decimal): pass'); assert Own('2') == 2 and isinstance(Own('2'), Decimal)",
        "from typing import Optional; Optional[Decimal]; Decimal | None; int | Decimal",
    ],
)
def test_a_class_that_was_imported_by_name_is_as_good_as_the_real_one(use):
    """Made, asked for what it has, extended, and named in annotations."""
    assert [] == said(f"from decimal import Decimal; {use}; print('[]')")


def test_threads_get_the_same_module():
    """Though each may be the first to use it."""
    program = """
import threading, zoneinfo, json
found = []
threads = [threading.Thread(target=lambda: found.append(zoneinfo.ZoneInfo("UTC"))) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
print(json.dumps([len(found), len({id(type(each)) for each in found})]))
"""
    assert [8, 1] == said(program)


LEFT = """
import json
real = [name for name in deferred.DEFERRED if name in sys.modules and not hasattr(sys.modules[name], "is_imported")]
print(json.dumps(real))
"""


def test_an_agent_imports_nothing_of_it(tmp_path):
    """All modules of `vdev run`, its options read, a configuration checked."""
    (tmp_path / "vdev.yaml").write_text("version: v1\ndevices: [{name: d, resource: a.dev/d, virtual: {count: 1}}]")
    program = f"""
import os
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
from vdev import cli
from vdev.cli import options
from vdev.cli.processes import run
from vdev.agent import Agent
from vdev.observe.metrics import Metrics
args = cli.parsed(["run", {str(tmp_path / "vdev.yaml")!r}])
args.config_files = args.files
made = run.agent_options(options.read(args))
assert made.load(made.files).spec.entries
Agent(made, Metrics(shown=False))
"""
    assert [] == said(program + LEFT)


def test_who_speaks_with_an_api_server_imports_little_of_it(tmp_path):
    """Of lightkube the part that reads kubeconfig files."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],"
        "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )
    program = f"""
from pathlib import Path
from vdev.api_server import find_server
from vdev.kube.connection import Connection
Connection.open(find_server(kubeconfig=Path({str(kubeconfig)!r})))
"""
    assert {"ipaddress", "ssl"} >= set(said(program + LEFT))


COOKIES = """
import asyncio, contextlib, json
from pathlib import Path
from vdev.api_server import find_server
from vdev.kube.connection import Connection
asked = []
async def answer(reader, writer):
    with contextlib.suppress(asyncio.IncompleteReadError):
        for _ in range(2):
            asked.append((await reader.readuntil(b"\\r\\n\\r\\n")).decode().lower())
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nSet-Cookie: a=b; Path=/\\r\\n\\r\\n{}")
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    at = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
    kubeconfig = Path(KUBECONFIG)
    kubeconfig.write_text(json.dumps({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": at}}], "users": [{"name": "u", "user": {}}],
    }))
    connection = Connection.open(find_server(kubeconfig=kubeconfig))
    for _ in range(2):
        async with connection.ask("GET", "/version", params={}, headers={}, body=None) as found:
            assert await found.body(2**20) == b"{}"
asyncio.run(main())
print(json.dumps([len(asked), "cookie" in "".join(asked), "email.parser" in sys.modules]))
"""


def test_a_cookie_is_not_kept(tmp_path):
    """An API server sets none; what stands before it may, and kubectl gives none back either."""
    assert [2, False, False] == said(COOKIES.replace("KUBECONFIG", repr(str(tmp_path / "config"))))


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"HTTPS_PROXY": "http://a:1", "no_proxy": "b"}, {"https": "http://a:1", "no": "b"}),
        ({"http_proxy": "c:2"}, {"http": "c:2"}),
        ({}, {}),
    ],
)
def test_proxies_are_those_of_the_environment(environment, found):
    """In capitals or not; where it names none, nothing is imported to find that out."""
    program = f"""
import json, os
for name in list(os.environ):
    if name.lower().endswith("_proxy"):
        del os.environ[name]
os.environ.update({environment!r})
from urllib.request import getproxies
print(json.dumps([getproxies(), "http.client" in sys.modules]))
"""
    assert [found, bool(environment)] == said(program)


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


STAYS = """
import importlib, json, os, traceback
from itertools import groupby
from vdev import deferred

def well(act, *arguments):
    if pid := os.fork():
        return os.waitpid(pid, 0)[1] == 0
    try:
        act(*arguments)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)

def stays(name):
    real = importlib.import_module(name)
    deferred.defer()
    assert importlib.import_module(name) is real, name

def all_stay(package, names):
    importlib.import_module(package)  # as the import of each begins
    replaced = [name for name in names if not well(stays, name)]
    assert not replaced, replaced

def package(name):
    return name.partition(".")[0]

print(json.dumps([names for each, some in groupby(sorted(deferred.DEFERRED), package)
                  if not well(all_stay, each, names := [*some])]))
"""


def test_what_is_imported_already_stays():
    """Nothing is put in the place of a module that somebody has; each is alone with that in a process."""
    done = subprocess.run([sys.executable, "-c", STAYS], capture_output=True, text=True, timeout=60)
    assert "[]\n" == done.stdout, done.stderr


@pytest.mark.parametrize("environment", [{}, {"COLUMNS": "100"}, {"COLUMNS": "x", "LINES": "7"}])
def test_a_terminal_is_as_wide_as_ever(environment):
    """Help is broken into lines by that, and nothing is imported for it."""
    program = f"""
import json, os
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
os.environ.update({environment!r})
import shutil
ours = [tuple(shutil.get_terminal_size()), tuple(shutil.get_terminal_size((7, 9)))]
had = shutil.is_imported()
shutil.rmtree
import shutil
print(json.dumps([had, ours == [tuple(shutil.get_terminal_size()), tuple(shutil.get_terminal_size((7, 9)))]]))
"""
    assert [False, True] == said(program)


def test_constants_are_those_of_the_module():
    """They are what asyncio has as defaults, and what pydantic has."""
    program = """
import json, subprocess
from pydantic.json_schema import DEFAULT_REF_TEMPLATE
ours = [subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL, DEFAULT_REF_TEMPLATE]
subprocess.Popen(["true"]).wait()
sys.modules["pydantic.json_schema"].SkipJsonSchema
import pydantic.json_schema, subprocess
real = [subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL, pydantic.json_schema.DEFAULT_REF_TEMPLATE]
print(json.dumps([ours == real, hasattr(subprocess, "is_imported")]))
"""
    assert [True, False] == said(program)


def test_a_schema_says_what_it_says_elsewhere():
    """Though what a field says of itself was made before the module was imported."""
    program = """
import json
from typing import Annotated
from pydantic import BaseModel, WithJsonSchema
class Model(BaseModel):
    field: Annotated[int, WithJsonSchema({"type": "string"})]
print(json.dumps([type(WithJsonSchema).__module__, Model.model_json_schema()["properties"]]))
"""
    assert {"field": {"title": "Field", "type": "string"}} == said(program)[1]


def test_yaml_is_read_and_written_without_libyaml_as_well():
    """By what reads it in Python, whose errors are the same classes as those of libyaml."""
    program = """
import json, yaml
from yaml.scanner import ScannerError
found = [yaml.safe_load("a: [1, b]"), yaml.safe_dump({"c": 1})]
for loader in (yaml.CSafeLoader, yaml.SafeLoader):
    try:
        yaml.load("a: '", loader)
    except yaml.YAMLError as error:
        found.append(isinstance(error, yaml.scanner.ScannerError))
print(json.dumps([*found, list(yaml.load("[x, y]", yaml.CSafeLoader))]))
"""
    assert [{"a": [1, "b"]}, "c: 1\n", True, True, ["x", "y"]] == said(program)


def test_files_are_watched_without_looking_for_the_library():
    """Which Python does with the output of a program."""
    program = """
import json, os
from inotify_simple import INotify, flags
watch = INotify()
watch.add_watch(".", flags.CREATE)
print(json.dumps(sys.modules["subprocess"].is_imported() if "subprocess" in sys.modules else False))
"""
    assert said(program) is False
