"""Generate vdev/pb from the .proto files here, or with --check fail when it is stale.

The generated code is checked in, so that neither users nor the image need a compiler.
"""

import argparse
import filecmp
import re
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "vdev" / "pb"
INIT = '"""Wire messages and stubs, generated from proto/ by `make proto`; never edited."""\n'

_EXPERIMENTAL = re.compile(
    r"\n+ # This class is part of an EXPERIMENTAL API\.\nclass .*?(?=\n\n\nclass |\Z)", re.DOTALL
)
"""gRPC's second way to call a method, without a stub; a third of the generated code, and nobody takes it."""
_VERSION_CHECK = re.compile(r"import warnings\n|GRPC_GENERATED_VERSION(?:: str\n.*?: str| = .*?\n    \))\n", re.DOTALL)
"""Whether the grpcio installed is new enough for the code; pyproject.toml asks for that already."""
_MESSAGES_ALONE = ("api_objects",)
"""Files without services, of which no stubs are kept."""


def generate(out: Path) -> None:
    """Write the generated package below `out`, at vdev/pb."""
    protos = sorted(str(path.relative_to(HERE)) for path in HERE.glob("vdev/pb/*.proto"))
    well_known = str(resources.files("grpc_tools") / "_proto")
    outputs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python", "mypy_grpc")]
    plugin = f"--plugin=protoc-gen-mypy_grpc={Path(sys.executable).with_name('protoc-gen-mypy_grpc')}"
    if protoc.main(["protoc", f"-I{HERE}", f"-I{well_known}", plugin, *outputs, *protos]) != 0:
        sys.exit("protoc failed; its message is above")
    (out / "vdev" / "pb" / "__init__.py").write_text(INIT)
    for name in _MESSAGES_ALONE:
        for path in (out / "vdev" / "pb").glob(f"{name}_pb2_grpc.py*"):
            path.unlink()
    for path in (out / "vdev" / "pb").glob("*_pb2_grpc.py*"):
        path.write_text(_EXPERIMENTAL.sub("\n", _VERSION_CHECK.sub("", path.read_text())))


def main() -> None:
    """Generate, or compare with what is checked in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when vdev/pb is stale")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = Path(scratch) / "vdev" / "pb"
        names = sorted({path.name for place in (fresh, TARGET) for path in place.glob("*.py*") if path.is_file()})
        _, differing, missing = filecmp.cmpfiles(fresh, TARGET, names, shallow=False)
        if check and (differing or missing):
            sys.exit(f"vdev/pb is stale: {', '.join(sorted([*differing, *missing]))}; run make proto")
        if not check:
            shutil.rmtree(TARGET, ignore_errors=True)
            shutil.copytree(fresh, TARGET)


if __name__ == "__main__":
    main()
