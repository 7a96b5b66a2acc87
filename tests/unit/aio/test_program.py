"""Programs that are ended while they start."""

from vdev.aio import program


def test_nothing_is_started_once_it_is_aborted(tmp_path):
    """Its thread came late."""
    one = program.Program(["touch", str(tmp_path / "seen")])
    one.abort()
    assert one.run() == "touch was not run any more"
    assert not (tmp_path / "seen").exists()
