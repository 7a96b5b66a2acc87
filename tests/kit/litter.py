"""Creates foreign files and directories in a directory of CDI specifications."""

import os
import socket

BOMB = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40)
)


def litter(directory, stem):
    """Create one file of each kind that is not a specification, under names of specifications."""
    os.mkfifo(directory / f"{stem}pipe.json")
    os.mkfifo(directory / f"{stem}pipe.yaml")
    (directory / f"{stem}directory.json").mkdir()
    (directory / f"{stem}nowhere.json").symlink_to("not-there")
    (directory / f"{stem}loop.json").symlink_to(f"{stem}loop.json")
    (directory / f"{stem}device.json").symlink_to("/dev/zero")
    (directory / f"{stem}deep.json").write_text("[" * 200_000)
    (directory / f"{stem}deep.yaml").write_text("[" * 200_000)
    (directory / f"{stem}bomb.yaml").write_text(BOMB)
    (directory / f"{stem}bytes.json").write_bytes(b"\xff\xfe\x00{")
    (directory / f"{stem}numbers.json").write_text('{"kind": 1, "devices": [1, {"name": 1}, {"name": ["x"]}]}')
    (directory / f"{stem}digits.json").write_text("9" * 10_000)
    with (directory / f"{stem}sparse.json").open("wb") as file:
        file.truncate(2**40)
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(directory / f"{stem}socket.json"))
    bound.close()
    for name in (f"{stem}\udcff.json", f"{stem}line\nbreak.json"):
        (directory / name).write_text("{}")
