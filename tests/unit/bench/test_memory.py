"""Where the memory goes is told in parts that come to the whole."""

from bench import memory


def test_each_module_is_in_one_part():
    """The most special one; what is in none is the standard library."""
    modules = {"grpc.aio": (2.0, 1.0), "vdev.core.spec": (0.5, 0.5), "vdev.pb.x_pb2": (0.25, 0.25), "vdev": (1.0, 1.0)}
    found = {
        part.what: (part.modules, part.resident, part.own) for part in memory.parts({**modules, "json": (4.0, 3.0)})
    }
    assert found["gRPC"] == (1, 2.0, 1.0)
    assert found["vdev: the core"] == (1, 0.5, 0.5)
    assert found["protobuf, with the generated messages"] == (1, 0.25, 0.25)
    assert found["vdev: the agent, and all others"] == (1, 1.0, 1.0)
    assert found["the standard library"] == (1, 4.0, 3.0)


def test_the_parts_come_to_the_whole():
    """What no import took is the running plugin's."""
    document = {"bare": [8.0, 3.0], "modules": {"grpc": [9.0, 2.0], "json": [1.0, 1.0]}, "all": [20.0, 8.0]}
    lines = memory.as_markdown(document).splitlines()
    assert "| the bare interpreter, with `typing` |  | 8.0 | 3.0 |" in lines
    assert "| **all** | 2 | **20.0** | **8.0** |" in lines
    (running,) = [line for line in lines if line.startswith("| running")]
    assert running.endswith("|  | 2.0 | 2.0 |")
    assert lines[-1] == "Most of its own: `grpc` 2.0, `json` 1.0."
