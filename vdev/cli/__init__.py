"""The `vdev` command: imports the module of the sub-command, runs it, and turns exceptions into exit codes.

Each command is a module with `EPILOG`, `add_arguments` and `run(args) -> int`, listed in `COMMANDS`. A module is
imported only if its command is called, so that commands without a kubelet start fast.

Exit codes: 0 success, 1 failure at run time, 2 wrong configuration or usage.
"""

import argparse
import contextlib
import errno
import importlib
import io
import os
import sys
from collections import deque
from collections.abc import Container, Mapping, Sequence
from typing import Any, NoReturn

from .. import __version__
from ..errors import ConfigError, UsageError, VdevError, reason_of
from ..model.problem import did_you_mean

COMMANDS = {
    "run": "run the plugin: serve a configuration's devices to the kubelet",
    "sim": "run the embedded kubelet alone, for any device plugin",
    "demo": "run the plugin on the embedded kubelet, step by step",
    "init": "write a commented configuration to start with",
    "validate": "check configuration files and show every error",
    "plan": "show what a node would advertise, without a kubelet",
    "allocate": "show what a container gets if these devices are allocated",
    "config": "show the effective configuration, with each value's origin",
    "presets": "show the models and nodes that come with vdev",
    "schema": "print the configuration file's JSON Schema, for editors",
    "import": "convert the configuration of another plugin",
    "completion": "print the completion of commands and options for a shell",
    "status": "show what the plugin serves: devices, health, pods, problems",
    "top": "show devices with their pods, load, temperature and faults",
    "record": "record this node's devices as a configuration",
    "fault": "inject, list and end faults in the running plugin",
    "device": "set a device's health in the running plugin",
    "node": "show or remove what vdev wrote on a Node",
    "fleet": "give devices to nodes without a kubelet",
    "dra": "print or apply the DeviceClasses of a configuration",
}
"""Every command with its line in the help."""

_INTERRUPTED = 130  # 128 + SIGINT, like a shell
_BROKEN_PIPE = 141  # 128 + SIGPIPE
_WRITE_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # if stdout cannot be written

EPILOG = """examples:
  vdev init gpu vdev.yaml            write a configuration to start with
  vdev validate vdev.yaml            check a file
  vdev plan vdev.yaml                show what this node would advertise
  vdev run vdev.yaml                 advertise it

vdev COMMAND --help describes a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As on stderr: the terminal's encoding may lack characters of a file name.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        chosen = parsed(arguments)
        code = int(chosen.run(chosen) or 0)
        sys.stdout.flush()
    except SystemExit as done:  # after --help and --version
        return int(done.code or 0)
    except ConfigError as bad:
        from .. import importers  # not needed for --help
        from .common import complain

        with contextlib.suppress(BrokenPipeError):
            complain(importers.explained(bad))
        return bad.exit_code
    except VdevError as error:
        for line in str(error).splitlines():
            _complain(f"vdev: {line}")
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as failed:
        if failed.errno not in _WRITE_ERRORS or failed.filename is not None:
            raise
        with contextlib.suppress(OSError):  # Python would otherwise try to flush the output at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if failed.errno == errno.EPIPE:
            return _BROKEN_PIPE
        _complain(f"vdev: the output cannot be written: {reason_of(failed)}")
        return 1
    return code


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; `run` of the result is the command's function. Raises UsageError; SystemExit after help."""
    name = next((each for each in arguments if not each.startswith("-")), "")
    if name and name not in COMMANDS:
        near = did_you_mean(name, COMMANDS)
        raise UsageError(f"unknown command {name!r}; " + (near or f"expected one of {', '.join(COMMANDS)}"))
    parser, modules = parser_of([name])
    command, own = parser, arguments
    if list(arguments[:1]) == [name]:
        command, own = subcommands(parser)[name], arguments[1:]
    # Options and positional arguments may be mixed, except where argparse does not support it.
    is_mixed = not subcommands(command) and "--" not in own
    parse = command.parse_known_intermixed_args if is_mixed else command.parse_known_args
    found, rest = parse(spelled_out(own, _options(command)))
    if rest:
        raise UsageError(_unknown(rest[0], command))
    found.run = modules[name].run if name else lambda _: parser.print_help()
    return found


class _Parser(argparse.ArgumentParser):
    """A parser that accepts no abbreviated flags. It raises errors, which `main` prints."""

    def __init__(self, **options: Any) -> None:
        defaults = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**{**defaults, **options})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def parser_of(chosen: Container[str]) -> tuple[argparse.ArgumentParser, dict[str, Any]]:
    """Return a parser with all commands, and the modules of the chosen ones by name. Only these have arguments."""
    parser = _Parser(
        prog="vdev",
        description="Make a Kubernetes node advertise any device that a YAML file declares.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"vdev {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="action")
    modules: dict[str, Any] = {}
    for name, summary in COMMANDS.items():
        command = subparsers.add_parser(name, help=summary)
        if name in chosen:
            file = "imports" if name == "import" else name  # `import` is a keyword
            modules[name] = module = importlib.import_module(f".{file}", __name__)
            command.description, command.epilog = sentence(summary), module.EPILOG
            module.add_arguments(command)
    return parser, modules


def sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _unknown(argument: str, parser: argparse.ArgumentParser) -> str:
    flag, known = argument.partition("=")[0], _options(parser)
    near = did_you_mean(flag, known) if flag.startswith("-") and flag not in known else ""
    return f"unknown argument {argument!r}; " + (near or f"see {parser.prog} --help")


def arguments_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments of a parser, without those of its subcommands."""
    return [each for each in parser._actions if each.dest != "action"]  # argparse has no public API for this


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands of `vdev`, or of the actions of a command, by name."""
    found = (each.choices for each in parser._actions if each.dest == "action" and isinstance(each.choices, Mapping))
    return {name: inner for choices in found for name, inner in choices.items()}


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The options of the parser and of its subcommands, by flag."""
    options = {flag: each for each in arguments_of(parser) for flag in each.option_strings}
    for inner in subcommands(parser).values():
        options |= _options(inner)
    return options


def spelled_out(arguments: Sequence[str], actions: Mapping[str, argparse.Action]) -> list[str]:
    """Convert arguments to the form of argparse. They may be written like Go's flags, as for NVIDIA's plugin.

    One dash may replace two. A boolean needs no value, and takes the next argument only if that is `true` or `false`.
    """
    result: list[str] = []
    rest = deque(arguments)
    while rest:
        argument = rest.popleft()
        if argument == "--":
            return [*result, argument, *rest]
        name, equals, value = argument.partition("=")
        if argument.startswith("-") and name not in actions and f"-{name}" in actions:
            argument, name = f"-{argument}", f"-{name}"
        if name not in actions or actions[name].metavar != "BOOL":
            result.append(argument)
            continue
        if not equals:
            value = rest.popleft() if rest and rest[0].lower() in ("true", "false") else "true"
        result.append(f"{name}={value}")
    return result


def _complain(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr)
