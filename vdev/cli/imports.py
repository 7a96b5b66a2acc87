"""`vdev import`: converts the configuration of another plugin."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import importers
from ..config import text_of
from ..errors import UsageError
from ..importers.draft import Draft
from . import common

EPILOG = """examples:
  vdev import generic-device-plugin.yaml > vdev.yaml
  vdev import conf.yaml                                   the plugin is detected by the content
  kubectl -n kube-system get cm sriovdp-config -o yaml | vdev import - > vdev.yaml
  vdev import --domain example.com --device '{name: fuse, groups: [{paths: [{path: /dev/fuse}]}]}'
  vdev import topology.yaml --to configs/                 a file for each node pool
  vdev import mig-parted.yaml --only all-balanced --preset a100-sxm4-40gb --count 8
  vdev import vdev.yaml --output json                     for programs: files and warnings

Supported are generic-device-plugin (file, flags, DaemonSet), smarter-device-manager, the SR-IOV network device plugin,
fake-gpu-operator (topology, Helm values), NVIDIA's mig-parted, and NVIDIA's device plugin (ConfigMap or Helm values
with several configurations). A ConfigMap may contain any of them. Parts that cannot be converted become comments in the
file and warnings on stderr.

If a source has several results (node pools, named configurations), --to DIR writes all of them and --only NAME prints
one. A node uses the file that its label vdev.dev/config names. Check the result with vdev plan.

The exit code is 0 if something was converted, also with warnings; 1 with --strict and a warning; 2 if the plugin is not
known or nothing can be converted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "vdev import [option ...] FILE [FILE ...]"
    parser.add_argument("files", nargs="*", metavar="FILE", help="what to import; - is standard input")
    form = f"the format, one of {', '.join(importers.FORMS)} [default: detected by the content]"
    parser.add_argument("--from", dest="form", choices=[*importers.FORMS], metavar="FORM", default="", help=form)
    parser.add_argument(
        "--to",
        metavar="PATH",
        help="where to write: a file such as vdev.yaml, or a new directory; several results need a directory",
    )
    parser.add_argument("--only", metavar="NAME", help="print only the result with this name")
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="TEXT",
        help="a value of generic-device-plugin's --device, instead of a file; may be repeated",
    )
    parser.add_argument("--domain", default="", help="domain of the resources, if the plugin takes it from a flag")
    parser.add_argument(
        "--preset", default="", help="model of the GPUs, if the file does not name it; see vdev presets"
    )
    parser.add_argument("--count", type=int, default=0, metavar="N", help="number of GPUs, if not in the file")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if something could not be converted")
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if bool(args.files) is bool(args.device):
        both = "give a file or --device, not both" if args.files else "no file to import; see vdev import --help"
        raise UsageError(both)
    options = importers.ImportOptions(
        form=args.form or ("generic-device-plugin" if args.device else ""),
        domain=args.domain,
        preset=args.preset,
        count=args.count,
    )
    made: list[Draft] = []
    if args.device:
        made += importers.imported("\n---\n".join(args.device), "--device", options)
    for file in args.files:
        path = Path("/dev/stdin" if file == "-" else file)
        found = importers.imported(text_of(path), str(path), options)
        if len(args.files) > 1:
            for each in found:
                each.name = (len(found) > 1 and each.name) or path.stem
        made += found
    return _deliver(args, made)


def _deliver(args: argparse.Namespace, made: Sequence[Draft]) -> int:
    chosen = [each for each in made if args.only in (None, each.name)]
    names = [each.name or "vdev" for each in made]
    if not chosen:
        raise UsageError(f"--only {args.only}: there is no such result; there are {', '.join(names)}")
    if args.output == "json":
        files = [{"name": each.name, "text": each.text, "warnings": each.warnings} for each in chosen]
        print(json.dumps({"files": files}, indent=2))
    elif args.to is not None:
        _write(args.to, chosen)
    elif len(chosen) > 1:
        raise UsageError(
            f"there are {len(chosen)} results: {', '.join(names)}; --to DIR writes all, --only NAME prints one"
        )
    else:
        sys.stdout.write(chosen[0].text)
    warnings = [(each.name, text) for each in chosen for text in each.warnings]
    if args.output != "json":
        for name, text in dict.fromkeys(warnings):
            print(f"warning: {name + ': ' if name and len(chosen) > 1 else ''}{text}", file=sys.stderr)
    return 1 if args.strict and warnings else 0


def _write(to: str, made: Sequence[Draft]) -> None:
    path = Path(to)
    is_directory = to.endswith("/") or path.is_dir() or len(made) > 1 or not (path.suffix or path.exists())
    places = [path / f"{each.name or 'vdev'}.yaml" for each in made] if is_directory else [path]
    if len(set(places)) < len(places):
        raise UsageError("--to: two results have the same file name; import their sources separately")
    if unfit := [place for place in places if is_directory and place.parent != path]:
        raise UsageError(f"--to: {unfit[0]} would be outside of the directory")
    try:
        if is_directory:
            path.mkdir(parents=True, exist_ok=True)
        for place, each in zip(places, made, strict=True):
            place.write_text(each.text)
            print(place)
    except OSError as failed:
        raise UsageError(f"--to: {failed.filename or path} cannot be written: {failed.strerror}") from failed
