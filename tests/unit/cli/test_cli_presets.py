"""`vdev presets`: a list, one preset, and JSON."""

import json

from vdev import config

NAMES = config.preset_names()


def test_the_list_has_every_preset(vdev):
    code, out, _ = vdev("presets")
    assert 0 == code
    assert set(NAMES) <= {row[0] for row in map(str.split, out.splitlines()) if row}


def test_profiles_and_layouts_are_shown_with_their_starts(vdev):
    """They are those in NVIDIA's table of placements."""
    code, shown, _ = vdev("presets", "a100-sxm4-40gb")
    assert 0 == code
    assert "2g.10gb    9856Mi   2       3     0, 2, 4" in shown
    assert "all-balanced  1g.5gb, 1g.5gb, 2g.10gb" in shown


def test_json(vdev):
    _, out, _ = vdev("presets", "--output", "json")
    every = {each["name"]: each for each in json.loads(out)}
    _, out, _ = vdev("presets", "mi300x-8", "--output", "json")
    one = json.loads(out)
    assert (one, 8, 192 * 2**30) == (every["mi300x-8"], one["count"], one["memory"])
    profile = next(each for each in one["partitioning"]["profiles"] if each["name"] == "dpx_nps1")
    assert ([0, 4], 2) == (profile["starts"], profile["most"])
