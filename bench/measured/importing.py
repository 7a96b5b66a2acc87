"""A `vdev` command that counts what each import takes: `python -P bench/measured/importing.py FILE COMMAND …`.

Once there is a file `FILE.now` it writes FILE: MiB, resident and not backed by files, of the bare interpreter, of each
module without what it imports in turn, and of the whole process then. It imports nothing for itself but `typing`, so
that little is taken from those that follow.
"""

import os
import sys
from typing import Any  # which everything imports

_PAGES = os.sysconf("SC_PAGESIZE") / 2**20


def _size() -> tuple[float, float]:
    """MiB now, resident and own."""
    with open("/proc/self/statm") as file:
        _, resident, shared, *_ = file.read().split()
    return int(resident) * _PAGES, (int(resident) - int(shared)) * _PAGES


class Counter:
    """Finds modules as they are found without it, and counts while they are executed."""

    def __init__(self) -> None:
        self.bare = _size()
        self.modules: dict[str, tuple[float, float]] = {}
        self._within: list[tuple[float, float]] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """What the other finders find, with a loader that counts."""
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    self._wrap(name, spec.loader)
                return spec
        return None

    def _wrap(self, name: str, loader: Any) -> None:
        create, execute = loader.create_module, loader.exec_module
        begun: list[tuple[float, float]] = []

        def creating(spec: Any) -> Any:
            begun.append(_size())
            self._within.append((0.0, 0.0))
            return create(spec)

        def executing(module: Any) -> None:
            try:
                execute(module)
            finally:
                (resident, own), (before, own_before) = _size(), begun.pop()
                inner = self._within.pop()
                total = resident - before, own - own_before
                self.modules[name] = total[0] - inner[0], total[1] - inner[1]
                if self._within:
                    outer = self._within[-1]
                    self._within[-1] = outer[0] + total[0], outer[1] + total[1]

        if not isinstance(loader, type):  # built-in and frozen modules have a class, and cost next to nothing
            loader.create_module, loader.exec_module = creating, executing

    def write(self, file: str) -> None:
        """All of it, with the whole process now."""
        import json  # by now the command has it

        document = {"bare": self.bare, "modules": dict(self.modules), "all": _size()}
        with open(f"{file}.new", "w") as out:
            json.dump(document, out)
        os.rename(f"{file}.new", file)


def main() -> None:
    """Count, and run the command."""
    counter = Counter()
    sys.meta_path.insert(0, counter)
    _, file, *sys.argv[1:] = sys.argv
    sys.argv[0] = "vdev"
    import threading

    def later() -> None:
        import time

        while not os.path.exists(f"{file}.now"):
            time.sleep(0.05)
        counter.write(file)

    threading.Thread(target=later, daemon=True).start()
    from vdev.__main__ import main as command

    raise SystemExit(command())


if __name__ == "__main__":
    main()
