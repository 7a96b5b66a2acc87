"""The forms that are known, told by what a text holds, and the way from one to vdev's files."""

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
from .draft import Arguments, Draft, ImportSource, Wishes, listed, mapping, sources

__all__ = ["FORMS", "Form", "Imported", "Wishes", "imported", "recognised"]

_TRIES = 1000  # entries that are taken out, one after the other, until the rest is a configuration


@dataclass(frozen=True, slots=True)
class Form:
    """A peer's configuration: the name that `--from` takes, what people call it, and who reads it."""

    name: str
    title: str
    recognises: Callable[[Any], bool]
    drafts: Callable[[Sequence[ImportSource], Wishes], Sequence[Draft]]


def _form(name: str, title: str, module: ModuleType) -> Form:
    return Form(name, title, module.recognises, module.drafts)


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
"""By name, in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One vdev file that came of it, and what it does not say; `name` tells it from the others."""

    name: str
    text: str
    warnings: tuple[str, ...] = field(default=())


def recognised(text: str, name: str = "<text>") -> Form | None:
    """The form of a text, None for any other. NVIDIA's own form counts only where it is wrapped: vdev takes it bare."""
    try:
        found = sources(text, name)
    except ConfigError:
        return None
    form = _form_of(found)
    bare = form is not None and form.name == "nvidia" and not any(each.key or each.where for each in found)
    return None if bare and not any(nvidia_device_plugin.is_wrapped(each.content) for each in found) else form


def imported(text: str, name: str, wishes: Wishes) -> list[Imported]:
    """The vdev files that say the same. Raises UsageError, or ConfigError, where there is nothing to import."""
    found = sources(text, name)
    if wishes.arguments:
        found = [ImportSource(Arguments(wishes.arguments)), *found]
    form = FORMS[wishes.form] if wishes.form else _form_of(found) or _refuse(found, name)
    own = [each for each in found if form.recognises(each.content)]
    if not own:
        raise UsageError(f"{name}: this is no configuration of {form.title}")
    drafts = form.drafts(own, wishes)
    results = [_checked(draft) for draft in drafts]
    if not any(draft.devices or draft.shared or draft.flags for draft in drafts):
        why = "".join(f"\n  {warning}" for each in results for warning in each.warnings)
        nothing = "can be taken over:" + why if why else "is declared"
        raise UsageError(f"{name}: a configuration of {form.title}, of which nothing {nothing}")
    return results


def _form_of(found: Sequence[ImportSource]) -> Form | None:
    return next((form for form in FORMS.values() if any(form.recognises(each.content) for each in found)), None)


def _refuse(found: Sequence[ImportSource], name: str) -> NoReturn:
    entries = [entry for each in found for entry in listed(mapping(each.content).get("devices"))]
    if any("resource" in mapping(entry) for entry in entries):
        raise UsageError(f"{name}: this is a configuration of vdev already; vdev validate checks it")
    known = ", ".join(form.title for form in FORMS.values())
    raise UsageError(f"{name}: its form is not known; expected a configuration of {known}; --from says which it is")


def _checked(draft: Draft) -> Imported:
    """The file, without what vdev would refuse; that is a comment in it."""
    for _ in range(_TRIES):
        text = draft.text()
        try:
            config.load_text(text, draft.name or "<imported>")
        except ConfigError as bad:
            if not _mended(draft, bad):
                raise
        else:
            return Imported(draft.name, text, tuple(dict.fromkeys(draft.warnings)))
    raise AssertionError("unreachable: each round takes something out")


def _mended(draft: Draft, bad: ConfigError) -> bool:
    """Take out what is refused, for which the draft says why; whether something could be taken out."""
    problems = [each for each in bad.problems if isinstance(each, Problem) and each.is_error]
    return any(_taken_out(draft, each) for each in problems)


def _taken_out(draft: Draft, problem: Problem) -> bool:
    why = problem.message + (f"; {problem.hint}" if problem.hint else "")
    match problem.path:
        case ("devices", int(place), *_):
            draft.dismiss(place, why)
        case ("sharing", str(), "resources", int(place), *_):
            draft.lost(f"sharing of {draft.shared.pop(place).get('name')}", why)
        case ("flags", *keys) if _without(draft.flags, keys):
            draft.lost(show(problem.path), why)
        case ("sharing", str(), *keys) if _without(draft.sharing, keys):
            draft.lost(show(problem.path), why)
        case _:
            return False
    return True


def _without(values: dict[str, Any], path: Sequence[str | int]) -> bool:
    """Remove the key of that path; whether it was there."""
    keys = [step for step in path if isinstance(step, str)]
    for key in keys[:-1]:
        values = mapping(values.get(key))
    return bool(keys) and values.pop(keys[-1], None) is not None
