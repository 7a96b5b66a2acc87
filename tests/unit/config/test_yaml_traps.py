"""YAML's traps: no value silently becomes another one."""

import pytest

from vdev import config
from vdev.errors import ConfigError
from vdev.model.sources import Usb
from vdev.model.virtual import VirtualDevices


def usb(value: str, key: str = "vendor") -> Usb:
    """A USB source with this value."""
    text = f"devices:\n  - name: u\n    resource: a.b/u\n    usb: {{{key}: {value}}}\n"
    (stick,) = config.load_text(text, "f").spec.entries[0].usb
    return stick


def virtual(fields: str) -> VirtualDevices:
    """A virtual source with these fields."""
    text = f"devices:\n  - name: v\n    resource: a.b/v\n    virtual: {{{fields}}}\n"
    source = config.load_text(text, "f").spec.entries[0].virtual
    assert source is not None
    return source


def test_an_id_that_is_a_number_must_be_quoted(subtests):
    """The error shows the value as written, in quotes."""
    for written in ["0451", "1209", "8086", "0x1209", "0x1F", "1e3", "046e1", "0o17", "+1", ".5"]:
        with subtests.test(written=written):
            with pytest.raises(ConfigError) as caught:
                usb(written)
            message = str(caught.value)
            assert message.startswith("f:4:19: devices[0].usb.vendor: ")
            assert f'write it in quotes: "{written}"' in message


def test_texts_that_yaml_1_1_reads_otherwise(subtests):
    """Sexagesimal numbers, timestamps and on/off stay texts."""
    for written in ["12:34", "0000:03:02.0", "on", "yes", "n", "2026-01-02", "1_000", "0b11", "=", "1.2.3"]:
        with subtests.test(written=written):
            assert written == usb(written, "serial").serial


def test_a_boolean_is_true_or_false(subtests):
    """This applies to files of vdev, which have `devices`, `faults` or `presetsDir`."""
    for written in ["on", "yes", "y", "1", '"true"', "off", "null x"]:
        with subtests.test(written=written):
            for own in ("devices: []", "faults: {}", "presetsDir: ."):
                with pytest.raises(ConfigError, match=r"f:1:\d+: flags.failOnInitError: expected true or false"):
                    config.load_text(f"flags: {{failOnInitError: {written}}}\n{own}", "f")


def test_a_count_is_a_decimal_number(subtests):
    """Octal, hexadecimal and quoted numbers are errors."""
    for written in ["010", "0x10", "1e1", "1.0", '"4"', "four", "true", "[4]", "1_0"]:
        with (
            subtests.test(written=written),
            pytest.raises(ConfigError, match=r"virtual.count: expected a whole number, got"),
        ):
            virtual(f"count: {written}")


def test_attributes_are_kept_as_written() -> None:
    """8.10 is not 8.1, and 007 not 7."""
    written = {"version": "8.10", "agent": "007", "hex": "0x1F", "flag": "True", "text": "a b", "exp": "1e3"}
    source = virtual("attributes: {" + ", ".join(f"{key}: {value}" for key, value in written.items()) + "}")
    assert written == source.attributes


def test_memory_may_be_quoted():
    """A plain number is in bytes."""
    assert 1024 == virtual("memory: 1024").memory == virtual('memory: "1024"').memory


def test_durations_have_units_or_count_seconds(subtests):
    """Go's notation, or plain seconds."""
    for written, expected in [("5s", 5.0), ("200ms", 0.2), ("1m30s", 90.0), ("2", 2.0), ("0.5", 0.5), ("1h", 3600.0)]:
        with subtests.test(written=written):
            text = (
                f"devices: [{{name: a, resource: a.b/c, glob: /dev/x, health: {{probe: exists, interval: {written}}}}}]"
            )
            health = config.load_text(text).spec.entries[0].health
            assert health is not None
            assert expected == health.interval


def test_a_quoted_index_is_the_same_key() -> None:
    text = "devices: [{name: a, resource: a.b/c, virtual: {preset: a30}, partitions: {0: [1g.6gb], '0': [1g.6gb]}}]"
    with pytest.raises(ConfigError, match="key '0' is given twice"):
        config.load_text(text)
