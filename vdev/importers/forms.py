"""The known forms, how they are detected, and the conversion of a text to vdev files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NoReturn

from .. import config
from ..errors import ConfigError, UsageError
from ..model.problem import Problem, show
from . import (
    fake_gpu_operator,
    generic_device_plugin,
    mig_parted,
    nvidia_device_plugin,
    smarter_device_manager,
    sriov_device_plugin,
)
from .draft import Arguments, Draft, ImportOptions, ImportSource, listed, mapping, sources

__all__ = ["FORMS", "Form", "ImportOptions", "Imported", "imported", "recognized"]

_TRIES = 1000  # how many invalid parts of a result are removed, one after the other


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of configuration of another plugin."""

    name: str  # for `--from`
    title: str  # for messages
    recognizes: Callable[[Any], bool]
    drafts: Callable[[Sequence[ImportSource], ImportOptions], Sequence[Draft]]


def _form(name: str, title: str, module: ModuleType) -> Form:
    return Form(name, title, module.recognizes, module.drafts)


FORMS = {
    form.name: form
    for form in (
        _form("generic-device-plugin", "generic-device-plugin", generic_device_plugin),
        _form("smarter-device-manager", "smarter-device-manager", smarter_device_manager),
        _form("sriov", "the SR-IOV network device plugin", sriov_device_plugin),
        _form("fake-gpu-operator", "fake-gpu-operator", fake_gpu_operator),
        _form("mig-parted", "NVIDIA's mig-parted", mig_parted),
        _form("nvidia", "NVIDIA's device plugin", nvidia_device_plugin),
    )
}
"""The forms by name, in the order of detection."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A vdev file that an import made. `name` distinguishes it from other results of the same text."""

    name: str
    text: str
    warnings: tuple[str, ...] = field(default=())


def recognized(text: str, name: str = "<text>") -> Form | None:
    """The form of a text, or None. NVIDIA's form counts only in a ConfigMap or Helm values: vdev reads the file."""
    try:
        found = sources(text, name)
    except ConfigError:
        return None
    form = _form_of(found)
    bare = form is not None and form.name == "nvidia" and not any(each.key or each.where for each in found)
    return None if bare and not any(nvidia_device_plugin.is_wrapped(each.content) for each in found) else form


def imported(text: str, name: str, options: ImportOptions) -> list[Imported]:
    """The vdev files for a text. Raises UsageError or ConfigError if there is nothing to import."""
    found = sources(text, name)
    if options.arguments:
        found = [ImportSource(Arguments(options.arguments)), *found]
    form = FORMS[options.form] if options.form else _form_of(found) or _refuse(found, name)
    own = [each for each in found if form.recognizes(each.content)]
    if not own:
        raise UsageError(f"{name}: this is not a configuration of {form.title}")
    drafts = form.drafts(own, options)
    results = [_checked(draft) for draft in drafts]
    if not any(draft.devices or draft.shared or draft.flags for draft in drafts):
        why = "".join(f"\n  {warning}" for each in results for warning in each.warnings)
        nothing = "nothing in it can be converted:" + why if why else "it declares nothing"
        raise UsageError(f"{name}: this is a configuration of {form.title}, but {nothing}")
    return results


def _form_of(found: Sequence[ImportSource]) -> Form | None:
    return next((form for form in FORMS.values() if any(form.recognizes(each.content) for each in found)), None)


def _refuse(found: Sequence[ImportSource], name: str) -> NoReturn:
    entries = [entry for each in found for entry in listed(mapping(each.content).get("devices"))]
    if any("resource" in mapping(entry) for entry in entries):
        raise UsageError(f"{name}: this is a configuration of vdev already; vdev validate checks it")
    known = ", ".join(form.title for form in FORMS.values())
    raise UsageError(f"{name}: its form is not known; expected a configuration of {known}; --from says which it is")


def _checked(draft: Draft) -> Imported:
    """The file, in which parts that vdev would refuse are comments."""
    for _ in range(_TRIES):
        text = draft.text()
        try:
            config.load_text(text, draft.name or "<imported>")
        except ConfigError as bad:
            if not _remove_invalid(draft, bad):
                raise
        else:
            return Imported(draft.name, text, tuple(dict.fromkeys(draft.warnings)))
    raise AssertionError("unreachable: each round removes something")


def _remove_invalid(draft: Draft, bad: ConfigError) -> bool:
    """Remove the part with the first error that is in a removable part. Returns False if there is none."""
    problems = [each for each in bad.problems if isinstance(each, Problem) and each.is_error]
    return any(_remove_part(draft, each) for each in problems)


def _remove_part(draft: Draft, problem: Problem) -> bool:
    why = problem.message + (f"; {problem.hint}" if problem.hint else "")
    match problem.path:
        case ("devices", int(place), *_):
            draft.remove_entry(place, why)
        case ("sharing", str(), "resources", int(place), *_):
            draft.omit(f"sharing of {draft.shared.pop(place).get('name')}", why)
        case ("flags", *keys) if _remove_key(draft.flags, keys):
            draft.omit(show(problem.path), why)
        case ("sharing", str(), *keys) if _remove_key(draft.sharing, keys):
            draft.omit(show(problem.path), why)
        case _:
            return False
    return True


def _remove_key(values: dict[str, Any], path: Sequence[str | int]) -> bool:
    """Remove the key at this path. Returns whether it existed."""
    keys = [step for step in path if isinstance(step, str)]
    for key in keys[:-1]:
        values = mapping(values.get(key))
    return bool(keys) and values.pop(keys[-1], None) is not None
