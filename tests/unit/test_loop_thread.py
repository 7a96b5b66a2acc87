"""The thread in which the fixtures for pytest have their kubelet."""

from vdev.testing.loop_thread import LoopThread


def test_what_only_looks_can_look_after_the_end():
    """A test's report reads the kubelet's directory and metrics when everything is over."""
    with LoopThread() as thread:
        assert 1 == thread.ask(lambda: 1)
    assert 2 == thread.ask(lambda: 2)
