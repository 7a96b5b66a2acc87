"""A file that is read by entry, with an earlier reading known, is what the same file is to a reading of its own."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vdev import config
from vdev.config.document.loader import read_text
from vdev.core.model.origin import Override
from vdev.errors import ConfigError

ENTRIES = (
    "- name: a\n  resource: acme.dev/a\n  virtual: {count: 2}\n",
    "- name: b\n  resource: acme.dev/b\n  virtual: {count: 1, memory: 16Gi}  # a remark\n\n",
    "- {name: c, resource: acme.dev/c, glob: /dev/c*}\n",
    "- name: d\n  resource: acme.dev/d\n  virtual:\n    count: 3\n"
    "  container:\n    env:\n      TEXT: |\n        - name: no entry\n\n        x\n",
    "-\n  name: e\n  resource: nvidia.com/gpu\n  virtual: {preset: a100-sxm4-40gb, count: 1}\n# between entries\n",
    "- name: f\n  resource: acme.dev/f\n  virtual: {count: 1}\n  container: {env: {A: 'one\n\n  two'}}\n",
    "- name: g\n  resource: acme.dev/g\n  onNodes: [GPU-*]\n  virtual: {count: 1}\n",  # with a warning
    "- name: a\n  resource: acme.dev/twice\n  virtual: {count: 1}\n",
    "- name: h\n  resource: acme.dev/h\n  virtual: {count: many}\n",
    "- name: i\n  resource: acme.dev/i\n  unknown: 1\n  virtual: {count: 1}\n",
    "- name: j\n  name: j\n  resource: acme.dev/j\n  virtual: {count: 1}\n",
    "- &k\n  name: k\n  resource: acme.dev/k\n  virtual: {count: 1}\n",
    "- <<: *k\n  name: l\n",
    "- name: 'm\n- name: n'\n  resource: acme.dev/m\n  virtual: {count: 1}\n",
    "- name: o\n  resource: [\n- x\n",
    "- name: p\n  resource: acme.dev/p\n  virtual:\n",
    " - name: q\n",
    "-   name: r\n    resource: acme.dev/r\n    virtual: {count: 1}\n    container: {env: {A: }}\n",
    "- - name: s\n- name: t\n",
    "-\tname: u\n",
    "- name: v\r\n  resource: acme.dev/v\r\n  virtual: {count: 1}\r\n",
    "- text\n",
    "-\n",
)
GOOD = st.sampled_from(ENTRIES[:7])
ANY = st.sampled_from(ENTRIES)
HEADS = st.sampled_from(
    [
        "version: v1\n",
        "",
        "# a\n\n\nversion: v1\n",
        "---\n",
        "x: &k 1\n",
        "flags: {migStrategy: none}\n",
        "devices: []\n",
    ]
)
SECTIONS = st.sampled_from(
    ["devices:\n", "devices:   # all of them\n\n", "devices: \n# more\n", '"devices":\n', "devices: !!seq\n"]
)
TAILS = st.sampled_from(
    [
        "",
        "sharing: {timeSlicing: {resources: [{name: acme.dev/a, replicas: 2}]}}\n",
        "  x: 1\n",
        "...\n",
        "---\na: 1\n",
        "node: {labels: true}\n",
        "faults:\n  rules:\n  - {name: a, device: a/0, set: {health: unhealthy}}\n",
        "telemetry: {address: ':9400'}\n",
    ]
)


def indented(text, width):
    """The entry in a list that is indented so far."""
    return "".join(" " * width + line if line.strip() else line for line in text.splitlines(keepends=True))


@st.composite
def files(draw):
    """A file with some of these entries, most of which are good."""
    width = draw(st.sampled_from([0, 2]))
    entries = draw(st.lists(st.one_of(GOOD, GOOD, GOOD, ANY), min_size=0, max_size=5))
    return draw(HEADS) + draw(SECTIONS) + "".join(indented(each, width) for each in entries) + draw(TAILS)


def said(text, **options):
    """All that a reading comes to."""
    try:
        loaded = config.load_text(text, "f.yaml", **options)
    except ConfigError as bad:
        return bad.problems
    where = [(each.name, each.where) for each in loaded.spec.entries]
    return loaded.spec, where, loaded.problems, loaded.fingerprint, loaded.texts, loaded.origins, loaded.notices


@given(st.lists(files(), min_size=1, max_size=4), st.booleans())
def test_the_same_as_without(texts, partial):
    """Whatever was read before: the configuration, every problem and every place."""
    entries = config.KnownEntries()
    for text in texts:
        assert said(text, partial=partial) == said(text, partial=partial, entries=entries)


def known(text, entries=None):
    """The document, which must have been read by entry."""
    document = read_text(text, "f.yaml", entries=entries or config.KnownEntries())
    assert document.entries
    return document


@pytest.mark.parametrize("width", [0, 2])
def test_read_by_entry(width):
    """The plain form is, and its values and places are those of a whole reading, in the same order."""
    text = "version: v1\ndevices:\n" + "".join(indented(each, width) for each in ENTRIES[:7]) + "node: {labels: true}\n"
    by_entry, whole = known(text), read_text(text, "f.yaml")
    assert whole.root == by_entry.root
    assert [*whole.values.items()] == [*by_entry.values.items()]
    assert [*whole.keys.items()] == [*by_entry.keys.items()]


def test_what_did_not_change_is_not_made_again():
    """One entry of three is edited; the others are the same objects, from their trees to what they mean."""
    entries = config.KnownEntries()
    text = "devices:\n" + "".join(ENTRIES[:3])
    first, before = config.load_text(text, "f.yaml", entries=entries), known(text, entries).entries
    edited = text.replace("16Gi", "32Gi")
    second, after = config.load_text(edited, "f.yaml", entries=entries), known(edited, entries).entries
    assert [True, False, True] == [a.tree is b.tree for a, b in zip(before, after, strict=True)]
    assert [True, False, True] == [a is b for a, b in zip(first.spec.entries, second.spec.entries, strict=True)]


def test_what_moved_is_not_validated_again():
    """It says the same at another place."""
    entries = config.KnownEntries()
    text = "devices:\n" + "".join(ENTRIES[:3])
    config.load_text(text, entries=entries)
    models = [each.model for each in known(text, entries).entries]
    config.load_text(f"# a remark\n{text}", entries=entries)
    assert [id(each) for each in models] == [id(each.model) for each in known(text, entries).entries]


def test_presets_of_the_users_own_are_read_again(tmp_path):
    """What an entry comes to may be another, though its text is the same."""
    text = "presetsDir: .\ndevices:\n- name: x\n  resource: acme.dev/x\n  virtual: {preset: mine}\n"
    file, entries = tmp_path / "f.yaml", config.KnownEntries()
    file.write_text(text)
    memories = []
    for size in ("1Gi", "2Gi"):
        (tmp_path / "mine.yaml").write_text(f"resource: acme.dev/x\nmemory: {size}\ncount: 1\n")
        memories.append(config.load([file], entries=entries).spec.entries[0].source.memory)
    assert [2**30, 2**31] == memories


@given(st.lists(st.tuples(files(), files()), min_size=1, max_size=2))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_two_files(tmp_path, texts):
    """One of them may have the devices, or both, which is an error."""
    entries, paths = config.KnownEntries(), [tmp_path / "a.yaml", tmp_path / "b.yaml"]

    def told(**options):
        try:
            loaded = config.load(paths, **options)
        except ConfigError as bad:
            return bad.problems
        return loaded.spec, loaded.problems

    for pair in texts:
        for path, text in zip(paths, pair, strict=True):
            path.write_text(text)
        assert told() == told(entries=entries)


WHOLE = "version: v1\ndevices:\n- {name: x, resource: acme.dev/x, virtual: {count: 2}}\n"


def test_files_that_say_the_same_are_not_worked_out_again(tmp_path):
    """What a reading came to is good for as long as the texts are, and knows all that it knew."""
    file, entries = tmp_path / "f.yaml", config.KnownEntries()
    file.write_text(WHOLE)
    first, second, third = (config.load([file], entries=entries) for _ in range(3))
    assert first == second
    assert second is third
    assert first.origins == second.origins
    assert first.notices == second.notices


@pytest.mark.parametrize(
    "options",
    [
        {"overrides": {"flags.failOnInitError": Override(value=False, source="a flag")}},
        {"partial": True},
        {"preset_dirs": [Path("mine")]},
    ],
)
def test_another_question_is_worked_out_again(tmp_path, options):
    """The same text under other flags, in part, or beside other presets."""
    file, entries = tmp_path / "f.yaml", config.KnownEntries()
    (tmp_path / "mine").mkdir()
    options = {key: [tmp_path / "mine"] if key == "preset_dirs" else value for key, value in options.items()}
    file.write_text(WHOLE)
    known = [config.load([file], entries=entries) for _ in range(2)][1]
    asked = config.load([file], entries=entries, **options)
    assert asked is not known
    assert asked == config.load([file], **options)


def test_another_text_is_read(tmp_path):
    """One of two files is edited, and edited back; where it is broken, that is told each time."""
    files, entries = [tmp_path / "a.yaml", tmp_path / "b.yaml"], config.KnownEntries()
    files[0].write_text(WHOLE)
    for text in ("flags: {failOnInitError: true}", "flags: {failOnInitError: false}", "flags: [", "flags: [", ""):
        files[1].write_text(text)
        for _ in range(2):
            assert _told(files) == _told(files, entries=entries)


def _told(files, **options):
    try:
        loaded = config.load(files, **options)
    except ConfigError as bad:
        return bad.problems
    return loaded, loaded.problems


LAYOUTS = "version: v1\nmig-configs:\n  mine:\n  - {devices: all, mig-enabled: false}\n"


def test_layouts_in_a_file_of_their_own_are_read_again(tmp_path):
    """What the text names may say something else, or not be there, though the text is the same."""
    entries, layouts, file = config.KnownEntries(), tmp_path / "layouts.yaml", tmp_path / "f.yaml"
    file.write_text(
        "version: v1\nflags: {migStrategy: mixed}\ndevices:\n- name: x\n  resource: nvidia.com/gpu\n"
        "  virtual: {preset: a100-sxm4-40gb, count: 1}\n"
        f"  partitions: {{fromLabel: nvidia.com/mig.config, default: mine, file: {layouts}}}\n"
    )
    told = []
    for text in (LAYOUTS, None, LAYOUTS, "version: v2", LAYOUTS.replace("mine", "theirs"), LAYOUTS):
        layouts.unlink(missing_ok=True)
        if text is not None:
            layouts.write_text(text)
        for _ in range(2):
            told.append(_told([file], entries=entries))
            assert _told([file]) == told[-1]
    assert told[0] == told[-1]
    assert told[0] not in told[2:4]
