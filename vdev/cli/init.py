"""`vdev init`: writes a commented configuration to start with."""

import argparse
import sys
from importlib import resources
from pathlib import Path

from .. import config
from ..errors import UsageError

KINDS = ("virtual", "gpu", "usb", "nvidia")
SCHEMA = "vdev.schema.json"

EPILOG = """examples:
  vdev init                          virtual devices, as vdev.yaml
  vdev init gpu gpus.yaml            virtual GPUs with MIG partitions
  vdev init usb devices.yaml         serial adapters and USB devices of this machine
  vdev init nvidia vdev.yaml         a configuration of NVIDIA's plugin on virtual GPUs
  vdev init gpu -                    print it, and write nothing

The schema for editors is written beside the file.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind",
        nargs="?",
        choices=KINDS,
        default="virtual",
        metavar="KIND",
        help="which devices: virtual, gpu, usb or nvidia [default: virtual]",
    )
    parser.add_argument(
        "file", nargs="?", default="vdev.yaml", metavar="FILE", help="the new file; - prints it [default: vdev.yaml]"
    )


def run(args: argparse.Namespace) -> int:
    """Write the file; an existing file is an error."""
    text = resources.files(__package__).joinpath(f"starters/{args.kind}.yaml").read_text("utf-8")
    if args.file == "-":
        sys.stdout.write(text.replace("{schema}", SCHEMA).replace("FILE", "vdev.yaml"))
        return 0
    path = Path(args.file)
    schema = path.with_name(SCHEMA)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text.replace("{schema}", SCHEMA).replace("FILE", str(path)))
        schema.write_text(config.json_schema_text(), encoding="utf-8")
    except FileExistsError:
        raise UsageError(f"{path} exists already; give another name, or - to print") from None
    except OSError as failed:
        raise UsageError(f"{failed.filename} cannot be written: {failed.strerror}") from None
    # On stderr, because `vdev init > FILE` would write this line into the file.
    print(f"wrote {path}, and {schema} for editors; next: vdev plan {path}", file=sys.stderr)
    return 0
