"""Modules that libraries import and a plugin on its own never uses: they are imported when something of them is used.

Until then something stands for them that has nothing but their name: `import ssl` succeeds, and `ssl.SSLContext`
imports the module. It is Python's own lazy import (PEP 810) for the versions that have none. What that saves of memory
is in docs/performance.md, by name.
"""

import importlib
import os
import sys
from _thread import RLock
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TextIO

_SETTINGS = "pydantic_settings.sources.providers"
_HTTP = "httpcore2"

DEFERRED: Mapping[str, tuple[str, ...]] = {
    "ssl": (),  # asyncio; TLS alone uses it, and 3 MiB of libraries come with it
    "asyncio.sslproto": (),
    "importlib.metadata": ("entry_points",),  # pydantic, for plugins; email and zipfile come with it
    "google.protobuf.internal.python_message": (),  # messages where the library of compiled code is missing
    "calendar": ("timegm",),  # protobuf, for timestamps; http.cookiejar
    "zoneinfo": ("ZoneInfo", "ZoneInfoNotFoundError"),  # pydantic, for fields of that type; so the next two
    "pydantic.json_schema": (  # who asks for a schema of the file is `vdev schema`
        "GenerateJsonSchema",
        "JsonSchemaKeyT",
        "JsonSchemaMode",
        "JsonSchemaValue",
        "PydanticJsonSchemaWarning",
        "model_json_schema",
    ),
    "dotenv": ("dotenv_values",),  # pydantic-settings, for files of variables
    "yaml.loader": ("BaseLoader", "FullLoader", "Loader", "SafeLoader", "UnsafeLoader"),  # libyaml reads and writes
    "yaml.dumper": ("BaseDumper", "Dumper", "SafeDumper"),
    "yaml.reader": ("Reader", "ReaderError"),
    "yaml.scanner": ("Scanner", "ScannerError"),
    "yaml.parser": ("Parser", "ParserError"),
    "yaml.composer": ("Composer", "ComposerError"),
    "yaml.emitter": ("Emitter", "EmitterError"),
    "subprocess": (),  # asyncio, for processes; locale comes with it
    "ctypes.util": (),  # inotify-simple, to look for the C library, which takes a program
    "shutil": (),  # argparse, for the terminal's width
    "tempfile": ("TemporaryDirectory",),  # importlib.resources, for resources of an archive
    "ipaddress": ("IPv4Address", "IPv4Interface", "IPv4Network", "IPv6Address", "IPv6Interface", "IPv6Network"),
    "decimal": ("Decimal", "InvalidOperation"),
    f"{_SETTINGS}.cli": (  # vdev makes its command line itself, and reads no settings from what follows
        "CLI_SUPPRESS",
        "CliDualFlag",
        "CliExplicitFlag",
        "CliImplicitFlag",
        "CliMutuallyExclusiveGroup",
        "CliPositionalArg",
        "CliSettingsSource",
        "CliSubCommand",
        "CliSuppress",
        "CliToggleFlag",
        "CliUnknownArgs",
        "CliVariadicArg",
    ),
    f"{_SETTINGS}.aws": ("AWSSecretsManagerSettingsSource", "AWSSystemsManagerSettingsSource"),
    f"{_SETTINGS}.azure": ("AzureKeyVaultSettingsSource",),
    f"{_SETTINGS}.gcp": ("GoogleSecretManagerSettingsSource",),
    f"{_SETTINGS}.json": ("JsonConfigSettingsSource",),
    f"{_SETTINGS}.nested_secrets": ("NestedSecretsSettingsSource",),
    f"{_SETTINGS}.pyproject": ("PyprojectTomlConfigSettingsSource",),
    f"{_SETTINGS}.toml": ("TomlConfigSettingsSource",),
    f"{_SETTINGS}.yaml": ("YamlConfigSettingsSource",),
    "lightkube.core.async_client": ("AsyncClient",),  # lightkube's requests; vdev makes its own
    "lightkube.core.client": ("Client",),
    "lightkube.core.generic_client": ("ALL_NS",),
    "lightkube.core.internal_models": ("meta_v1",),
    "lightkube.core.sort_objects": ("sort_objects",),
    "msgspec._json_schema": ("schema", "schema_components"),
    "msgspec.inspect": (),
    "httpx2._transports.asgi": ("ASGITransport",),  # for tests of applications; so the next two
    "httpx2._transports.mock": ("MockTransport",),
    "httpx2._transports.wsgi": ("WSGITransport",),
    "httpx2._cookies": (),  # an API server sets none, and kubectl would keep none
    "http.cookiejar": ("Cookie", "CookieJar"),
    "urllib.request": ("parse_http_list",),  # httpx, for cookies and proxies; http.client and email come with it
    "email.message": (),  # httpx, for cookies
    "idna": (),  # httpx, for names of servers that are not ASCII
    "mimetypes": (),  # httpx, for files that are uploaded
    "truststore": (),  # httpx, for the system's certificate authorities; clusters have their own
    f"{_HTTP}._async.http2": ("AsyncHTTP2Connection",),
    f"{_HTTP}._async.http_proxy": ("AsyncHTTPProxy",),
    f"{_HTTP}._sync.connection": ("HTTPConnection",),  # calls that block; vdev makes none
    f"{_HTTP}._sync.connection_pool": ("ConnectionPool",),
    f"{_HTTP}._sync.http11": ("HTTP11Connection",),
    f"{_HTTP}._sync.http2": ("HTTP2Connection",),
    f"{_HTTP}._sync.http_proxy": ("HTTPProxy",),
    f"{_HTTP}._sync.interfaces": ("ConnectionInterface",),
    "gettext": (),  # argparse, for translations, which Python has none of; locale comes with it
    "pickle": ("PicklingError",),  # structlog, for loggers that are pickled
    "tokenize": (),  # linecache, for tracebacks
    "bz2": (),  # shutil, for archives
    "lzma": (),
}
"""Each with the functions and classes of it that a library imports by name, and which stand for themselves as well."""

_WITH: Mapping[str, tuple[str, ...]] = {
    "yaml.loader": tuple(f"yaml.{each}" for each in ("reader", "scanner", "parser", "composer", "constructor")),
    "yaml.dumper": tuple(f"yaml.{each}" for each in ("emitter", "serializer", "representer")),
}
"""What is found as an attribute of a package once that module is imported."""

WITHOUT = (
    "rich",  # structlog would show tracebacks in colours with it: 4 MiB that nobody looks at
    "h2",  # httpx would speak HTTP/2 with it, and is not asked to
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
        """Nothing of it is executed yet, and what others expect to be imported with it is."""
        for name in _WITH.get(module.__name__, ()):
            importlib.import_module(name)


class _StandIn(ModuleType):
    """A module whose attributes are those of the real one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._lock = RLock()
        vars(self).update((each, _Named(self, each)) for each in DEFERRED[name])
        vars(self).update(_INSTEAD.get(name, {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for these
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}, for it is not imported yet")
        return getattr(self.real(), name)

    def is_imported(self) -> bool:
        """Whether the module itself has taken the place of this one."""
        return sys.modules.get(self.__name__) is not self

    def real(self) -> ModuleType:
        """The module itself, which takes its place for all who import it from now on."""
        with self._lock:
            if not self.is_imported():
                del sys.modules[self.__name__]
                for name in _WITH.get(self.__name__, ()):
                    if isinstance(with_it := sys.modules.get(name), _StandIn):
                        with_it.real()
                module = importlib.import_module(self.__name__)
                vars(self).update((name, value) for name, value in vars(module).items() if not name.startswith("__"))
            return importlib.import_module(self.__name__)


class _Named:
    """A function or a class that was imported by name: whatever is done with it is done with the real one.

    Only to be listed among others or to be asked of what it is an instance imports nothing.
    """

    def __init__(self, of: _StandIn, name: str) -> None:
        self._of = of
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._real(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return self._of.is_imported() and isinstance(instance, self._real())

    def __mro_entries__(self, _bases: object) -> tuple[Any, ...]:
        return (self._real(),)

    def __or__(self, _other: object) -> Any:
        return self  # for code that evaluates annotations

    __ror__ = __or__

    def _real(self) -> Any:
        return getattr(self._of.real(), self.__name__)


class _NoSocket:
    """What asyncio compares each socket with, to refuse those of ssl: while that is not imported, there are none."""


def _version(distribution: str) -> str:
    """As `importlib.metadata` has it, from the name of the directory alone."""
    begin, end = f"{distribution.lower().replace('-', '_')}-", ".dist-info"
    for directory in sys.path:
        try:
            with os.scandir(directory or ".") as found:
                for each in found:
                    if each.name.lower().startswith(begin) and each.name.endswith(end):
                        return each.name[len(begin) : -len(end)]
        except OSError:  # no directory, an archive for example
            continue
    version: str = importlib.import_module("importlib.metadata").distribution(distribution).version
    return version


class _NoCookies:
    """What httpx gives cookies to and takes them from."""

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def extract_cookies(self, response: object, request: object) -> None:
        """None is kept."""

    def add_cookie_header(self, request: object) -> None:
        """None is sent."""


class _NoRequest:
    """What httpx shows a request as to who keeps cookies."""

    def __init__(self, **_of: object) -> None:
        """Nobody looks at it."""


def _text(path: str) -> TextIO:
    """A source file; they are all of this encoding."""
    return open(path, encoding="utf-8")  # linecache has a name and no Path


def _proxies() -> Mapping[str, str]:
    """As `urllib.request` has them, which is imported where the environment names any."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    found: Mapping[str, str] = importlib.import_module("urllib.request").getproxies_environment()
    return found


def _terminal_size(fallback: tuple[int, int] = (80, 24)) -> os.terminal_size:
    """As `shutil` has it: what the environment says, else the terminal."""
    try:
        there = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else -1)
    except (OSError, ValueError):  # no terminal, or closed
        there = os.terminal_size(fallback)
    named = (os.environ.get(each, "") for each in ("COLUMNS", "LINES"))
    chosen = [int(each) if each.isdecimal() else 0 for each in named]
    return os.terminal_size((chosen[0] or there.columns or fallback[0], chosen[1] or there.lines or fallback[1]))


class _JsonSchema:
    """What pydantic has for a field's JSON Schema, for models of which nobody asks for one."""

    def __init__(self, json_schema: Mapping[str, object]) -> None:
        self._json_schema = json_schema

    def __get_pydantic_json_schema__(self, _core: object, _handler: object) -> dict[str, object]:
        return dict(self._json_schema)


_INSTEAD: Mapping[str, Mapping[str, object]] = {
    "ssl": {"SSLSocket": _NoSocket},
    "importlib.metadata": {"version": _version},  # httpx says its own
    "httpx2._cookies": {"IndexedCookieJar": _NoCookies},
    "urllib.request": {"Request": _NoRequest, "getproxies": _proxies},
    "tokenize": {"open": _text},  # linecache
    "pydantic.json_schema": {"DEFAULT_REF_TEMPLATE": "#/$defs/{model}", "WithJsonSchema": _JsonSchema},
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},
    "ctypes.util": {"find_library": lambda _name: None},  # that is this process, which has the C library
    "shutil": {"get_terminal_size": _terminal_size},
    "gettext": {"gettext": lambda text: text, "ngettext": lambda one, many, count: one if count == 1 else many},
}
"""What is used of modules though they are not imported."""
