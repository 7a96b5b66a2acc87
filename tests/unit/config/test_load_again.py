"""A configuration loaded once more from its texts is the same one, whatever became of its files."""

import shutil
from pathlib import Path

import pytest

from vdev import config
from vdev.errors import ConfigError
from vdev.model.problem import Override

GOOD = "version: v1\ndevices:\n  - {name: acme, resource: acme.dev/npu, virtual: {count: 2}}\n"
OWN = "devices:\n  - {name: lab, resource: lab.dev/npu, virtual: {preset: lab}}\npresetsDir: presets\n"

FILES = {
    "one file": {"a.yaml": GOOD},
    "with a byte order mark and other letters": {"a.yaml": f"\ufeff# Geräte, 裝置\n{GOOD}"},
    "joined": {"a.yaml": GOOD, "b.yaml": "flags: {migStrategy: mixed}\n"},
    "one that says nothing": {"a.yaml": GOOD, "b.yaml": "# later\n"},
    "presets of its own": {
        "a.yaml": OWN,
        "presets/lab.yaml": "base: rack\nmemory: 3Gi\n",
        "presets/rack.yaml": "base: dgx-a100\nattributes: {rack: r1}\n",
        "presets/other.yaml": "memory: nonsense\n",
    },
}


@pytest.fixture
def write(tmp_path):
    """Write files, by name; the configuration files among them."""

    def write(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        return [tmp_path / name for name in files if "/" not in name]

    return write


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_it_is_the_same_when_the_files_are_gone(write, tmp_path, files):
    """Values, warnings and places: they are made from the same text under the same names."""
    loaded = config.load(write(files))
    shutil.rmtree(tmp_path)
    again = config.load_again(loaded.texts)
    assert (loaded.spec, loaded.problems, loaded.texts) == (again.spec, again.problems, again.texts)


def test_only_presets_that_were_taken_belong_to_it(write):
    """Those of ours come with vdev, and others do not matter."""
    loaded = config.load(write(FILES["presets of its own"]))
    assert {"lab", "rack"} == set(loaded.texts.presets)


def test_presets_of_the_command_line_belong_to_it(write, tmp_path):
    """Their directory need not be there any more."""
    files = FILES["presets of its own"] | {"a.yaml": OWN.replace("presetsDir: presets\n", "")}
    loaded = config.load(write(files), preset_dirs=[tmp_path / "presets"])
    assert loaded.spec == config.load_again(loaded.texts).spec


def test_two_entries_with_one_preset_see_one_text(write, monkeypatch):
    """Also when the file is changed meanwhile."""
    (file,) = write({"a.yaml": OWN, "presets/lab.yaml": "memory: 1Gi\n"})
    file.write_text(
        OWN.replace("presetsDir", "  - {name: two, resource: lab.dev/two, virtual: {preset: lab}}\npresetsDir")
    )
    read = Path.read_bytes

    def read_and_change(path):
        data = read(path)
        if path.name == "lab.yaml":
            path.write_text("memory: 2Gi\n")
        return data

    monkeypatch.setattr(Path, "read_bytes", read_and_change)
    assert {2**30} == {entry.source.memory for entry in config.load([file]).spec.entries}


def test_what_stands_over_the_files_is_of_today(write):
    """Flags and variables are the process's own."""
    texts = config.load(write(FILES["one file"])).texts
    over = {"flags.migStrategy": Override("mixed", "flag --mig-strategy")}
    assert "mixed" == config.load_again(texts, overrides=over).spec.flags.mig_strategy
    with pytest.raises(ConfigError, match="migStrategy"):
        config.load_again(texts, overrides={"flags.migStrategy": Override("no", "flag --mig-strategy")})
