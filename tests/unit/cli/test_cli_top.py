"""`vdev top`: devices with faults come first, and their number can be limited."""

import asyncio
import json

import pytest

from vdev.agent import command_socket
from vdev.cli import main, top

GPU = "nvidia.com/gpu"


def device(number, **changes):
    """A device as in the plugin's answer."""
    return {
        "id": f"GPU-{number}",
        "entry": "a100",
        "resource": GPU,
        "parent": "",
        "index": str(number),
        "deviceIndex": str(number),
        "profile": "",
        "health": "Healthy",
        "reason": "",
        "injected": "",
        "lost": False,
        "xid": 0,
        "load": 50.0,
        "memoryUsedMiB": 1024,
        "memoryTotalMiB": 40960,
        "temperature": 50.0,
        "power": 200.0,
        "powerLimit": 400.0,
        "energy": 1,
        "clock": 1410,
        "throttled": False,
        "eccCorrected": 0,
        "eccUncorrected": 0,
        "holders": [],
    } | changes


def shown(*devices, sort="load", rows=None):
    return list(top.lines({"node": "n", "devices": list(devices)}, sort, rows))


def test_order():
    """Lost devices come first, then unhealthy ones, hot ones, and the busiest."""
    lost = device(1, lost=True, xid=79, health="Unhealthy", injected="drill")
    sick = device(2, health="Unhealthy", reason="probe failed")
    hot = device(3, throttled=True, temperature=95.0)
    lines = shown(device(0, load=90.0), device(4, load=99.0), hot, sick, lost)
    assert lines[0] == "node n: 5 devices, 0 held by pods, 3 with faults, load 68 %, 1.0 kW"
    assert [line.split()[0] for line in lines[3:]] == ["a100/1", "a100/2", "a100/3", "a100/4", "a100/0"]
    assert "LOST, Xid 79, Unhealthy (drill: drill)" in lines[3]
    assert "Unhealthy: probe failed" in lines[4]
    assert "throttled" in lines[5]


def test_a_lost_device_has_no_metrics_and_some_have_no_memory():
    bare = device(1, memoryTotalMiB=0, memoryUsedMiB=0)
    lines = shown(device(0, lost=True, xid=79), bare, device(2))
    assert lines[2].split() == ["DEVICE", "LOAD", "MEMORY", "TEMP", "POWER", "STATE"]
    assert lines[3].split() == ["a100/0", "-", "-", "-", "-", "-", "LOST,", "Xid", "79"]
    assert lines[4].split() == ["a100/1", "50", "%", "█████·····", "-", "50", "°C", "200/400", "W", "busy"]
    assert "1.0/40.0 GiB" in lines[5]


def test_the_number_of_rows_is_limited():
    lines = shown(*(device(number, load=number % 100) for number in range(2000)), rows=10)
    assert len(lines) == 2 + 1 + 10 + 1
    assert lines[-1].startswith("  … and 1990 more; ")


@pytest.fixture
def plugin(monkeypatch):
    holder = {"namespace": "ml", "pod": "train", "container": "main"}
    told = {"on": True, "node": "n", "at": 0, "devices": [device(0), device(1, holders=[holder])]}

    async def ask(_directory, request):
        assert request == {"do": "top"}
        await asyncio.sleep(0)
        return json.loads(json.dumps(told))

    monkeypatch.setattr(command_socket, "ask", ask)
    return told


def test_without_a_terminal_it_prints_once(plugin, capsys):
    assert 0 == main(["top"])
    assert "a100/1" in capsys.readouterr().out
    assert 0 == main(["top", "--output", "json"])
    assert json.loads(capsys.readouterr().out) == plugin


def test_without_telemetry_there_is_a_hint(plugin, capsys):
    plugin["on"] = False
    assert 1 == main(["top"])
    assert "give telemetry in the configuration, such as telemetry: {}" in capsys.readouterr().err
