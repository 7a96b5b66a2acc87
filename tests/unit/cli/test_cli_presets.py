"""`vdev presets`: a list, one preset, and JSON."""

import json

from vdev import config
from vdev.cli import main

NAMES = config.preset_names()


def test_the_list_has_every_preset(capsys):
    assert 0 == main(["presets"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert set(NAMES) <= {row[0] for row in rows if row}


def test_profiles_and_layouts_are_shown_with_where_they_fit(capsys):
    """The starts are those in NVIDIA's table of placements."""
    assert 0 == main(["presets", "a100-sxm4-40gb"])
    shown = capsys.readouterr().out
    assert all(
        row in shown for row in ("2g.10gb    9856Mi   2       3     0, 2, 4", "all-balanced  1g.5gb, 1g.5gb, 2g.10gb")
    )


def test_json_has_the_same_for_programs(capsys):
    assert 0 == main(["presets", "--output", "json"])
    every = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert 0 == main(["presets", "mi300x-8", "--output", "json"])
    one = json.loads(capsys.readouterr().out)
    assert (one, 8, 192 * 2**30) == (every["mi300x-8"], one["count"], one["memory"])
    profile = next(each for each in one["partitioning"]["profiles"] if each["name"] == "dpx_nps1")
    assert ([0, 4], 2) == (profile["starts"], profile["most"])
