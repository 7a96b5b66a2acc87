"""The DaemonSet's pod, run here under its own restrictions: its command line, mounts and user are sufficient.

The root file system is read-only; there are no capabilities, no new privileges, no network interfaces, and only the
pod's mounts. Restrictions that need a container engine (seccomp, device cgroup) are not applied. The embedded kubelet
is on the other side of the sockets.
"""

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.kit.manifests import composed, pod_of
from tests.kit.process import send_signal
from vdev.agent import command_socket
from vdev.sim import Kubelet

ROOT = Path(__file__).parents[2]
COMPONENTS = ("host-devices", "cdi", "dra")  # components that mount host directories
CONFIG = """
version: v1
devices:
  - {name: sink, resource: acme.dev/sink, glob: /dev/null}
  - {name: npu, resource: acme.dev/npu, virtual: {count: 1}}
  - {name: claimed, resource: acme.dev/claimed, advertise: [dra], virtual: {count: 1}}
"""
TOOLS = ("kubectl", "unshare", "setpriv", "mount", "chroot")
PATIENCE = 60


def _missing():
    """Why this machine cannot run the test; empty if it can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    if os.geteuid() != 0:
        return "needs root, to make mounts"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        (Path(place) / "m").mkdir()
        script = f"mount -t overlay overlay -o lowerdir=/etc,upperdir={place}/u,workdir={place}/w {place}/m"
        command = f"mkdir {place}/u {place}/w && {script}"
        done = subprocess.run(["unshare", "--mount", "--net", "sh", "-c", command], capture_output=True, check=False)
    return "" if done.returncode == 0 else f"no mounts here: {done.stderr.decode().strip()}"


@pytest.fixture(scope="session")
def able():
    """Skip the test if this machine cannot run it."""
    if reason := _missing():
        pytest.skip(reason)


@pytest.fixture
def place():
    """A directory in memory, for an overlay's upper layer and short socket paths."""
    path = Path(tempfile.mkdtemp(prefix="vd", dir="/dev/shm"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


class Pod:
    """The DaemonSet's pod with all components. `host` contains the host's paths, except for /dev and /sys."""

    def __init__(self, place):
        self.spec = pod_of(composed(COMPONENTS))
        (self.container,) = self.spec["containers"]
        self.place = place
        self.host = place / "host"
        self.volumes = {each["name"]: self._volume(each) for each in self.spec["volumes"]}

    def _volume(self, volume):
        """The directory of a volume."""
        match volume:
            case {"hostPath": {"path": "/dev" | "/sys" as path}}:
                return Path(path)
            case {"hostPath": {"path": path}}:
                return self._made(self.host / path.lstrip("/"))
            case {"configMap": {"name": name}}:
                return self._configmap(self._made(self.place / "volumes" / name))
            case {"emptyDir": _, "name": name}:
                return self._made(self.place / "volumes" / name)
        raise AssertionError(volume)

    def _made(self, path):
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _configmap(self, directory):
        """Lay out a ConfigMap like the kubelet: links through `..data`."""
        publish(directory, "..1", CONFIG)
        (directory / "default.yaml").symlink_to("..data/default.yaml")
        return directory

    def script(self):
        """A script that mounts the pod's file system, drops privileges and runs the pod's command line."""
        root, layers = self.place / "root", self.place / "layers"
        lines = ["set -e", f"mkdir -p {root} {layers}/upper {layers}/work"]
        options = f"lowerdir=/,upperdir={layers}/upper,workdir={layers}/work"
        lines.append(f"mount -t overlay overlay -o {options} {root}")
        lines.append(
            f"rm -rf {root}/var/lib/kubelet"
        )  # in the upper layer: this machine may have it, an image does not
        mounts = self.container["volumeMounts"]
        lines += [f"mkdir -p {_inside(root, each['mountPath'])}" for each in mounts]
        if self.container["securityContext"]["readOnlyRootFilesystem"]:
            lines.append(f"mount -o remount,ro {root}")
        lines.append(f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev")
        for each in mounts:
            target = _inside(root, each["mountPath"])
            lines.append(f"mount --bind {self.volumes[each['name']]} {target}")
            if each.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {target}")
        secure = self.container["securityContext"]
        drops = ["--bounding-set=-all", "--inh-caps=-all"] if secure["capabilities"]["drop"] == ["ALL"] else []
        drops += [] if secure["allowPrivilegeEscalation"] else ["--no-new-privs"]
        drops += [f"--reuid={self.spec['securityContext']['runAsUser']}", "--clear-groups"]
        environ = [
            "NODE_NAME=worker-1",
            "POD_UID=12345678-uid",
            f"PYTHONPATH={ROOT}",
            "PYTHONDONTWRITEBYTECODE=1",
            "PATH=/usr/bin:/bin",
        ]
        command = [sys.executable, "-m", "vdev", *self.container["args"]]
        inside = ["chroot", str(root), "setpriv", *drops, "env", "-i", *environ, *command]
        lines.append("exec " + shlex.join(inside))
        return "\n".join(lines)


def _inside(root, path):
    """A path of the pod, with symlinks such as /var/run resolved below the pod's root."""
    return f"{root}{os.path.realpath(path)}"


def publish(directory, name, config):
    """Put a configuration into a ConfigMap's directory and swap `..data` to it, as the kubelet does."""
    (directory / name).mkdir()
    (directory / name / "default.yaml").write_text(config)
    (directory / "..new").symlink_to(name)
    (directory / "..new").rename(directory / "..data")


async def status_when(run_dir, condition, process):
    """Wait for the condition and return the agent's status."""
    from vdev.errors import VdevError

    async with asyncio.timeout(PATIENCE):
        while True:
            assert process.returncode is None, "the agent ended"
            try:
                status = await command_socket.ask(run_dir, {"do": "status"})
                if condition(status):
                    return status
            except VdevError:
                pass
            await asyncio.sleep(0.1)


def _serves(status):
    """Whether all resources are served. Without an API server, slices cannot be published."""
    return status["resources"] and all("ResourceSlice" in each for each in status["notReady"])


@pytest.mark.root
@pytest.mark.long
async def test_the_pod_runs_under_its_restrictions(able, place):
    """The agent registers, follows an edit, writes its files, and exits with 0."""
    pod = Pod(place)
    async with Kubelet(place / "host/var/lib/kubelet", node_name="worker-1") as kubelet:
        log = place / "log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *("unshare", "--mount", "--net", "--propagation", "private"),
                *("sh", "-c", pod.script()),
                stdout=out,
                stderr=out,
            )
        try:
            run_dir = pod.volumes["run"]
            status = await status_when(run_dir, _serves, process)
            wrong = [each["message"] for each in status["problems"] if each["severity"] == "error"]
            assert [] == [each for each in wrong if "no API server is known" not in each]  # the test has none
            assert "default.yaml" in status["config"]["choice"]
            assert status["podResources"]["readable"]
            state = Path(f"/proc/{process.pid}/status").read_text()
            fields = dict(line.split(":\t", 1) for line in state.splitlines() if ":\t" in line)
            assert {"0000000000000000"} == {fields[name] for name in ("CapEff", "CapPrm", "CapBnd")}
            assert "1" == fields["NoNewPrivs"]
            assert [] != list(pod.volumes["cdi"].glob("vdev-*.json"))
            socket = pod.volumes["plugins-registry"] / "acme.dev-12345678-uid-reg.sock"
            await kubelet.wait_until(socket.exists, what="the driver's socket")
            publish(pod.volumes["config"], "..2", CONFIG.replace("count: 1", "count: 2", 1))
            await kubelet.wait_until(lambda: kubelet.node().allocatable.get("acme.dev/npu") == 2, what="the edit")
        except BaseException:
            sys.stderr.write(log.read_text())
            raise
        finally:
            send_signal(process, signal.SIGTERM)
            code = await process.wait()
        assert 0 == code, log.read_text()
        assert [] == [str(each) for each in kubelet.errors]
