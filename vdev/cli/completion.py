"""`vdev completion`: the script for completion in a shell."""

import argparse
import re
import sys
from collections.abc import Iterator

import shtab

from .. import cli, config

DESCRIPTION = "Print the script with which a shell completes commands, options, presets and files after `vdev`."
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
    for command, action in _actions("", parser):
        if action.metavar in _COMPLETED:
            action.complete = _COMPLETED[str(action.metavar)]  # type: ignore[attr-defined]  # shtab reads it
        if _ALTERNATIVES.fullmatch(str(action.metavar)):
            action.choices = str(action.metavar).split("|")
        if command == "presets" and action.dest == "name":
            action.choices = config.preset_names()
    sys.stdout.write(shtab.complete(parser, args.shell))
    return 0


def _actions(command: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """All arguments with their commands."""
    for action in parser._actions:  # there is no public way
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _actions(f"{command} {name}".strip(), inner)
        else:
            yield command, action
