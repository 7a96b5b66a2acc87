"""The keys `telemetry` and `smi`, and faults that only sensors show."""

import pytest

from tests.kit.refused import check_refusals, refusals
from vdev import config
from vdev.faults.effects import HardwareErrorsFault, OverheatFault
from vdev.model.telemetry import EntryTelemetry, LoadPattern, Range, SmiTool, Telemetry

ENTRY = "devices:\n- name: a\n  resource: example.com/a\n  virtual: {}\n"
NVIDIA = "devices:\n- name: a\n  resource: nvidia.com/gpu\n  virtual: {preset: a100-sxm4-40gb}\n"


def entry(text):
    (found,) = config.load_text(text).spec.entries
    return found


def test_telemetry_is_off_by_default():
    spec = config.load_text(NVIDIA).spec
    assert spec.telemetry is None
    assert (spec.entries[0].telemetry, spec.entries[0].smi_tool) == (None, None)


@pytest.mark.parametrize("asking", ["telemetry: {}\n", "  telemetry: {}\n", "  smi: true\n"])
def test_telemetry_is_on_if_any_key_requests_it(asking):
    """The section, an entry's `telemetry`, or its tool."""
    text = asking + NVIDIA if asking.startswith("t") else NVIDIA + asking
    spec = config.load_text(text).spec
    assert Telemetry() == spec.telemetry
    load = spec.entries[0].telemetry
    assert (EntryTelemetry(), 10.0, Range(80, 98)) == (load, load.seconds, load.gpu_load)
    assert spec.entries[0].smi_tool is SmiTool.NVIDIA


def test_real_devices_need_their_own_key():
    """Power and temperature of a real serial port would be made up."""
    real = "devices:\n- name: uart\n  resource: example.com/uart\n  glob: /dev/ttyUSB*\n"
    assert entry("telemetry: {}\n" + real).telemetry is None
    assert entry(real + "  telemetry: {pattern: steady}\n").telemetry.pattern is LoadPattern.STEADY


def test_defaults_of_sensor_faults():
    rules = (
        "faults: {rules: [{name: hot, overheat: {}}, {name: e, hardwareErrors: {correctedEcc: 6}}]}\ntelemetry: {}\n"
    )
    spec = config.load_text(rules + ENTRY).spec
    assert spec.faults.rules[0].overheat == OverheatFault(to=105, within=60)
    assert spec.faults.rules[1].hardware_errors == HardwareErrorsFault(correctedEcc=6)


def test_errors_in_a_load(subtests):
    cases = [
        ("{pattern: bursts}", "did you mean 'burst'?"),
        ("{gpu: [90, 10]}", "the range begins at 90 and ends at 10; write the lower end first"),
        ("{gpu: [1, 2, 3]}", "expected the two ends of a range, got 3 values"),
        ("{gpu: 101}", "101 is more than 100 percent"),
        ("{gpu: -1}", "expected percent, got the number -1; such as 60, or [5, 95]"),
        ("{period: 0s}", "0 s is out of range"),
        (
            "{pattern: steady, period: 5s}",
            "telemetry.period: period is for busy, burst, wave and ramp only",
        ),
        (
            "{pattern: idle, gpu: 5}",
            "telemetry.gpu: gpu is for steady, busy, burst, wave and ramp only",
        ),
    ]
    check_refusals(subtests, cases, f"{ENTRY}  telemetry: @\n")


def test_errors_in_the_section(subtests):
    cases = [
        ("{address: 9400}", "'9400' is not an address; expected host:port, or \":9400\""),
        ('{address: "x:70000"}', "'x:70000' is not an address"),
        ('{address: "::1:9400"}', "write an IPv6 address in brackets"),
        ("{hostnameLabel: HOSTNAME}", "expected Hostname or hostname"),
    ]
    check_refusals(subtests, cases, f"telemetry: @\n{ENTRY}")


def test_other_errors():
    """An entry without a tool, no error counter, and impossible values."""
    assert "these devices have no smi" in refusals(ENTRY + "  smi: true\n")[0]
    rules = "telemetry: {}\nfaults: {rules: [{name: x, %s}]}\n" + ENTRY
    assert "no error is counted; give at least one" in refusals(rules % "hardwareErrors: {}")[0]
    assert "300 is out of range" in refusals(rules % "overheat: {to: 300}")[0]
    two = "overheat: {}, health: Unhealthy"
    assert "health and overheat exclude each other" in refusals(rules % two)[0]
