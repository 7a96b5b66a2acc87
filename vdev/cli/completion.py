"""`vdev completion`: the script for completion in a shell."""

import argparse
import re
import sys

import shtab

from .. import cli, config

EPILOG = """examples:
  vdev completion bash > ~/.local/share/bash-completion/completions/vdev
  vdev completion zsh > "${fpath[1]}/_vdev"
  vdev completion fish > ~/.config/fish/completions/vdev.fish

For this shell only: source <(vdev completion bash)
"""
_SHELLS = ("bash", "zsh", "fish")
_COMPLETED = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY, "NAME|FILE": shtab.FILE}
_ALTERNATIVES = re.compile(r"[a-z-]+(\|[a-z-]+)+")  # a metavar that lists all values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help="the shell: bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    parser, _ = cli.parser_of(cli.COMMANDS)
    _describe("vdev", parser)
    sys.stdout.write(shtab.complete(parser, args.shell))
    return 0


def _describe(command: str, parser: argparse.ArgumentParser) -> None:
    """Add to each argument what shtab completes for it."""
    for argument in cli.arguments_of(parser):
        if argument.metavar in _COMPLETED:
            argument.complete = _COMPLETED[str(argument.metavar)]  # type: ignore[attr-defined]  # shtab reads it
        if _ALTERNATIVES.fullmatch(str(argument.metavar)):
            argument.choices = str(argument.metavar).split("|")
        if command == "presets" and argument.dest == "name":
            argument.choices = config.preset_names()
    for name, inner in cli.subcommands(parser).items():
        _describe(name, inner)
