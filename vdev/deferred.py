"""Modules that libraries import and a plugin on its own never uses: they are imported when something of them is used.

Until then something stands for them that has nothing but their name: `import ssl` succeeds, and `ssl.SSLContext`
imports the module. It is Python's own lazy import (PEP 810) for the versions that have none. What that saves of memory
is in docs/performance.md, by name.
"""

import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

DEFERRED: Mapping[str, tuple[str, ...]] = {
    "ssl": (),  # asyncio; TLS alone uses it, and 3 MiB of libraries come with it
    "asyncio.sslproto": (),
    "importlib.metadata": ("entry_points",),  # pydantic, for plugins; email and zipfile come with it
    "tokenize": (),  # linecache, for tracebacks
    "bz2": (),  # shutil, for archives
    "lzma": (),
}
"""Each with the functions of it that a library imports by name, and which stand for themselves as well."""

WITHOUT = (
    "rich",  # structlog would show tracebacks in colours with it: 4 MiB that nobody looks at
    "_hashlib",  # OpenSSL's hashes; hashlib has its own of each that is used
)
"""What libraries import if it is there and do without otherwise."""


def defer() -> None:
    """Let nothing but their names be imported, unless they are imported already."""
    for name in WITHOUT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # which makes it unimportable
    sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds what stands for a module when it is imported first, and leaves the module itself to the others."""

    def __init__(self) -> None:
        self._deferred = set(DEFERRED)

    def find_spec(self, name: str, _path: object, _target: object = None) -> ModuleSpec | None:
        """Once for each."""
        if name not in self._deferred:
            return None
        self._deferred.remove(name)
        return ModuleSpec(name, self)  # type: ignore[arg-type]  # importlib.abc, whose class it wants, imports tempfile

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """What stands for it."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing of it is executed yet."""


class _StandIn(ModuleType):
    """A module whose attributes are those of the real one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        vars(self).update((each, self._calling(each)) for each in DEFERRED[name])
        if name == "ssl":
            self.SSLSocket = _NoSocket

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for these
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}, for it is not imported yet")
        return getattr(self._real(), name)

    def _calling(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(self._real(), name)(*args, **kwargs)

        return call

    def _real(self) -> ModuleType:
        """The module itself, which takes its place for all who import it from now on."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        vars(self).update((name, value) for name, value in vars(module).items() if not name.startswith("__"))
        return module


class _NoSocket:
    """What asyncio compares each socket with, to refuse those of ssl: while that is not imported, there are none."""
