"""Where the memory goes: `python -m bench.memory`, as Markdown.

One agent with eight resources of eight devices on the embedded kubelet, in which every import is counted without what
it imports in turn. Memory by feature is measured by `python -m bench features`.
"""

import asyncio
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .measured import configs, life, process

_MOST = 12  # single modules
_SETTLE = 3.0  # seconds
_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("gRPC", ("grpc",)),
    ("protobuf, with the generated messages", ("google", "vdev.pb")),
    (
        "pydantic, its core, pydantic-settings and what these import",
        (
            "pydantic",
            "pydantic_core",
            "pydantic_settings",
            "annotated_types",
            "typing_extensions",
            "typing_inspection",
            "dotenv",
        ),
    ),
    ("YAML, structlog", ("yaml", "structlog")),
    ("vdev: the core", ("vdev.core",)),
    ("vdev: the configuration with its models", ("vdev.config",)),
    ("vdev: the agent, and all others", ("vdev",)),
)
_REST = "the standard library"


@dataclass(frozen=True, slots=True)
class Part:
    """Some modules, and what they take in MiB: resident, and not backed by files."""

    what: str
    modules: int
    resident: float
    own: float


def parts(modules: dict[str, tuple[float, float]]) -> list[Part]:
    """Each part of the program; the standard library is what is in no other."""
    found: dict[str, list[tuple[float, float]]] = {_REST: [], **{what: [] for what, _ in _PARTS}}
    for name, taken in modules.items():
        found[_part_of(name)].append(taken)
    return [
        Part(what, len(taken), sum(each[0] for each in taken), sum(each[1] for each in taken))
        for what, taken in found.items()
    ]


def _part_of(module: str) -> str:
    for what, names in _PARTS:
        if any(f"{module}.".startswith(f"{name}.") for name in names):
            return what
    return _REST


async def measured() -> dict[str, Any]:
    """What the counting agent wrote."""
    async with process.place() as here:
        file = here.root / "memory.json"
        command = process.agent_command(here)
        counting = [command[0], "-P", str(process.ROOT / "bench/measured/importing.py"), str(file), *command[3:]]
        here.write_config(configs.plain(8, 8))
        async with life.running(here, counting, configs.resources(8)) as mine:
            await mine.registered()
            await asyncio.sleep(_SETTLE)
            file.with_suffix(".json.now").touch()
            await process.until(lambda: mine.process.check() or file.exists(), "the agent's count")
            document: dict[str, Any] = json.loads(file.read_text())
            return document


def as_markdown(document: dict[str, Any]) -> str:
    """The parts, and the modules that take most."""
    modules, (all_resident, all_own) = document["modules"], document["all"]
    bare = Part("the bare interpreter, with `typing`", 0, *document["bare"])
    imports = parts(modules)
    running = Part(
        "running: servers, channels, threads, lists; pages of libraries that are used now",
        0,
        all_resident - bare.resident - sum(each.resident for each in imports),
        all_own - bare.own - sum(each.own for each in imports),
    )
    lines = ["| what | modules | resident MiB | own MiB |", "|---|--:|--:|--:|"]
    lines += map(_line, (bare, *imports, running))
    lines.append(f"| **all** | {len(modules)} | **{all_resident:.1f}** | **{all_own:.1f}** |")
    most = sorted(modules.items(), key=lambda item: -item[1][1])[:_MOST]
    lines += ["", "Most of its own: " + _listed((name, own) for name, (_, own) in most) + "."]
    return "\n".join(lines)


def _line(part: Part) -> str:
    return f"| {part.what} | {part.modules or ''} | {part.resident:.1f} | {part.own:.1f} |"


def _listed(sizes: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"`{name}` {size:.1f}" for name, size in sizes)


if __name__ == "__main__":
    print(as_markdown(asyncio.run(measured())))
    sys.exit(0)
