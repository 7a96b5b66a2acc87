"""A prepared process of vdev is to the test that starts it what a real one is."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import execnet
import pytest

from tests.kit import mother, prepared, workers

GOOD = "devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 2}}]\n"

pytestmark = pytest.mark.skipif(not mother.CAN, reason="this system has no descriptors of processes")


def vdev(*arguments, **options):
    """A command that ends."""
    words = [prepared.python(), "-m", "vdev", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, **options)


@contextlib.asynccontextmanager
async def sim(directory, *before):
    """A command that lasts, from its first line on; gives its process."""
    words = (*before, prepared.python(), "-m", "vdev", "sim", "--kubelet-dir", str(directory / "k"))
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(60):
            while b"restart it" not in (line := await process.stdout.readline()):
                assert line, "it ended"
        yield process, int(line.split()[-1])
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def test_words_files_and_exit_code(tmp_path):
    """Its arguments, its directory, both outputs and the code are its own."""
    (tmp_path / "a b.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text("devices: [")
    good, bad = (vdev("validate", name, cwd=tmp_path) for name in ("a b.yaml", "bad.yaml"))
    assert (0, "a b.yaml: valid\n", "") == (good.returncode, good.stdout, good.stderr)
    assert (2, "") == (bad.returncode, bad.stdout)
    assert bad.stderr.startswith("bad.yaml:")


def test_standard_input():
    """A pipe is read to its end."""
    assert "acme.dev/npu" in vdev("plan", "-", input=GOOD).stdout


def test_the_environment_alone_is_handed_over(tmp_path, monkeypatch):
    """Neither what the prepared process has nor what another one had."""
    (tmp_path / "vdev.yaml").write_text("devices: [{name: npu, resource: acme.dev/npu, virtual: {ids: ['{node}']}}]\n")
    for name in ("one", "two"):
        assert name in vdev("plan", tmp_path / "vdev.yaml", env=os.environ | {"NODE_NAME": name}).stdout
    assert "two" not in vdev("plan", tmp_path / "vdev.yaml").stdout


@pytest.mark.parametrize("disregarded", ["", "INT", "TERM INT"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_is_handed_on(directory, number, disregarded):
    """It ends as it does by itself, also where a shell has the signal disregarded, as in the background."""
    async with sim(directory, "sh", "-c", f'trap "" {disregarded}; exec "$@"', "sh") as (process, _):
        os.kill(process.pid, number)
        async with asyncio.timeout(30):
            out, _ = await process.communicate()
        assert (0, True) == (process.returncode, b"stopped" in out)


async def test_a_signal_that_ends_it_is_told(directory):
    """One that it does not handle, which its stand-in has not got."""
    async with sim(directory) as (process, pid):
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            assert -signal.SIGKILL == await process.wait()


async def test_kill_leaves_nothing(directory):
    """Of both processes."""
    async with sim(directory) as (process, pid):
        handle = os.pidfd_open(pid)
        process.kill()
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(handle, gone.set)
        async with asyncio.timeout(30):
            await gone.wait()
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)


async def test_limits_and_disregarded_signals(directory):
    """What a shell set before it started the program."""
    async with sim(directory, "sh", "-c", 'trap "" USR1; ulimit -n 123; exec "$@"', "sh") as (_, pid):
        limits = Path(f"/proc/{pid}/limits").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
    (files,) = [line.split()[3:5] for line in limits.splitlines() if line.startswith("Max open files")]
    (ignored,) = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn")]
    assert (["123", "123"], True) == (files, bool(ignored & 1 << signal.SIGUSR1 - 1))


async def test_nobody_else_holds_its_pipe(directory):
    """Who reads what it writes sees the end when it has ended, whatever other processes run."""
    async with sim(directory) as (first, _), sim(directory / "other"):
        os.kill(first.pid, signal.SIGTERM)
        async with asyncio.timeout(30):
            await first.communicate()


def test_a_closed_pipe():
    """The exit code is that of a program that could not write."""
    command = f"'{prepared.python()}' -m vdev schema | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert ("", True) == (done.stderr, done.returncode in (0, 141))


def test_everything_else_is_python():
    """The program stands for Python."""
    done = subprocess.run([prepared.python(), "-c", "print(6 * 7)"], capture_output=True, text=True, timeout=60)
    assert "42\n" == done.stdout


def test_a_worker_is_a_copy(request):
    """Of a process that has imported the tests."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("this is no run of several workers")
    assert "tests.kit.workers" == sys.modules["__main__"].__spec__.name


def test_a_worker_without_copies(tmp_path):
    """Where a module of tests cannot be imported, workers begin with nothing, and each says what is wrong with it."""
    (tmp_path / "test_bad.py").write_text("import nothing_of_this_name\n")
    (spec,) = specs = [execnet.XSpec("popen")]
    workers.prepare(specs, [str(tmp_path)])
    program = specs[0].python
    assert spec.python is None
    words = [program, "-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]
    code = repr("import sys; print(*(each for each in ('pytest', 'test_bad') if each in sys.modules))")
    done = subprocess.run(words, input=f"{code}\n", capture_output=True, text=True, timeout=60)
    assert ("pytest\n", "", 0) == (done.stdout, done.stderr, done.returncode)
