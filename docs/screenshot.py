"""Make docs/images/status-page.png: the status page of an agent with virtual GPUs. It needs Chromium.

Run it with `PYTHONPATH=. .venv/bin/python docs/screenshot.py`. It starts the embedded kubelet with a few pods, and the
agent, in a temporary directory, and stops both.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = """
version: v1
flags: {migStrategy: mixed}
telemetry: {}
devices:
  - name: h100
    resource: nvidia.com/gpu
    virtual: {preset: h100-sxm5-80gb, count: 4}
    partitions: {"3": [1g.10gb, 2g.20gb, 3g.40gb]}
  - name: npu
    resource: acme.dev/npu
    virtual: {count: 2, memory: 16Gi}
faults:
  rules:
    - {name: fallen-off-the-bus, devices: [h100/1], xid: 79, manual: true}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers:
    - {{name: main, image: busybox, resources: {{limits: {{{resource}: {count}}}}}}}
"""
PODS = (("train", "nvidia.com/gpu", 2), ("notebook", "nvidia.com/mig-2g.20gb", 1), ("infer", "acme.dev/npu", 1))
IMAGE = Path(__file__).parent / "images" / "status-page.png"
SECONDS = 30  # so long the page's curves of load grow before the picture is taken
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--window-size=1200,900", "--virtual-time-budget=4000",
)  # fmt: skip
AGENT = ("--run-dir=run", "--state-dir=state", "--cdi-dir=cdi", "--enable-fault-injection")
VDEV = (sys.executable, "-m", "vdev")


def main() -> None:
    browser = shutil.which("chromium") or sys.exit("docs/screenshot.py needs Chromium")
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        (here / "gpus.yaml").write_text(CONFIG)
        (here / "pods").mkdir()
        for pod, resource, count in PODS:
            (here / "pods" / f"{pod}.yaml").write_text(POD.format(name=pod, resource=resource, count=count))
        address = "127.0.0.1:8080"
        places = ["--kubelet-dir=kubelet", "--node-name=gpu-worker"]
        processes = [
            subprocess.Popen([*VDEV, "sim", *places, "--pods=pods"], cwd=here),
            subprocess.Popen(
                [*VDEV, "run", "gpus.yaml", *places, *AGENT, f"--http-address={address}"],
                cwd=here,
            ),
        ]
        try:
            _wait_until_held(here)
            time.sleep(SECONDS)
            subprocess.run([*VDEV, "fault", "trigger", "fallen-off-the-bus", "--run-dir", here / "run"], check=True)
            time.sleep(2)
            subprocess.run([*VDEV, "top", "--once", "--run-dir", here / "run"], check=True)
            picture = (f"--user-data-dir={here}/browser", f"--screenshot={IMAGE}", f"http://{address}/")
            subprocess.run([browser, *FLAGS, *picture], check=True, stderr=subprocess.DEVNULL)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()


def _wait_until_held(here: Path) -> None:
    """Wait until all pods have their devices."""
    while True:
        status = subprocess.run(
            [*VDEV, "status", "--output", "json", "--run-dir", here / "run"], capture_output=True, check=False
        )
        if status.returncode == 0:
            holders = [each for part in json.loads(status.stdout)["resources"] for each in part["devices"]]
            if sum(bool(each.get("holder")) for each in holders) >= 4:
                return
        time.sleep(0.5)


if __name__ == "__main__":
    main()
