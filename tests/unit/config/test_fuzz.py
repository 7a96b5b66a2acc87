"""Whatever a file holds, the loader answers with a configuration or with a ConfigError."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from vdev import config
from vdev.config.loader import decoded, read_text
from vdev.errors import ConfigError

CONFIGS = Path(__file__).parents[3] / "configs"
SEEDS = [path.read_text() for path in sorted(CONFIGS.rglob("*.yaml"))]
SEEDS.append(
    "flags: {migStrategy: mixed, plugin: {deviceListStrategy: [envvar]}}\n"
    "devices:\n"
    "- {name: a, resource: a.b/c, virtual: {preset: a30, count: 2}, partitions: {0: all-balanced, 1: [1g.6gb@2]}}\n"
    "- {name: s, resource: a.b/s, sysfs: {class: drm, match: {x: {in: [y]}}}, health: {probe: exists, interval: 5s}}\n"
    "- {name: u, resource: a.b/u, usb: {vendor: '1050'}, container: {env: {A: '{id}'}, mounts: [{hostPath: /x}]}}\n"
    "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0, '0:1']}]}}\n"
    "resources: {gpus: [{pattern: '*', name: gpu}]}\n"
)
PIECES = [
    *("a", "0", "-1", "1e9", "~", "on", "true", "[", "]", "{", "}", ": ", ", ", "- ", "\n", "\n  ", "&a ", "*a"),
    *("<<: ", "'", '"', "|\n", "!!int ", "---\n", "\t", "#", "%", "? ", "\ufeff", "\u2028", "🦆", "{id}"),
    *("devices", "name", "resource", "glob", "virtual", "count", "0:1", "sharing", "timeSlicing", "mps"),
    *("resources", "partitions", "flags", "999999999999999999999"),
]
QUICK = settings(max_examples=settings().max_examples * 3 // 2)


def refusal(load: Callable[[], object]) -> ConfigError | None:
    """The only exception that a loader may raise, or None."""
    try:
        load()
    except ConfigError as refused:
        return refused
    return None


def survives(text: str) -> None:
    """The loader comes back, in whole and in part, with nothing but ConfigError."""
    whole = refusal(lambda: config.load_text(text, "f"))
    part = refusal(lambda: config.load_text(text, "f", partial=True))
    for refused in (whole, part):
        assert refused is None or any(str(problem) for problem in refused.problems)
    assert part is None or whole is not None


@QUICK
@given(st.binary(max_size=400))
def test_random_bytes_are_answered(data: bytes) -> None:
    """Any bytes."""
    refused = refusal(lambda: read_text(decoded(data, "f"), "f"))
    assert refused is None or refused.problems


@QUICK
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_yaml_like_text_is_answered(text: str) -> None:
    """Pieces of YAML and of our own words in any order."""
    survives(text)


@QUICK
@given(st.data())
def test_mutated_files_are_answered(data: st.DataObject) -> None:
    """A valid file with parts cut out, doubled, or replaced."""
    text = data.draw(st.sampled_from(SEEDS))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        text = text[:start] + data.draw(st.sampled_from([*PIECES, "", text[start:end] * 2])) + text[end:]
    survives(text)
