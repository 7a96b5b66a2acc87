"""Converts configurations of other plugins to vdev files, with warnings for all parts that cannot be converted.

    sources      the documents in a text, unwrapped from Kubernetes objects
    draft        a vdev file in the making
    go_patterns  Go's globs and regular expressions as vdev's patterns

Each form has a module with a `FORM`. This package does not depend on the node. All results are valid vdev files.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from .. import config
from ..errors import ConfigError, UsageError
from ..model.problem import Place, Problem, Where, error, errors
from ..planning.plan import prove
from . import (
    fake_gpu_operator,
    generic_device_plugin,
    mig_parted,
    nvidia_device_plugin,
    smarter_device_manager,
    sriov_device_plugin,
)
from .draft import SECTIONS, Draft, listed, mapping
from .sources import Form, ImportOptions, ImportSource, sources

__all__ = ["FORMS", "ImportOptions", "explained", "imported", "recognized"]

FORMS = {
    "generic-device-plugin": generic_device_plugin.FORM,
    "smarter-device-manager": smarter_device_manager.FORM,
    "sriov": sriov_device_plugin.FORM,
    "fake-gpu-operator": fake_gpu_operator.FORM,
    "mig-parted": mig_parted.FORM,
    "nvidia": nvidia_device_plugin.FORM,
}
"""The forms by name, in the order of detection."""


def recognized(text: str, name: str = "<text>") -> str:
    """Return the title of the form of a text, or the empty string. NVIDIA's form counts only in a ConfigMap or Helm
    values, because vdev reads the plain file.
    """
    try:
        found = sources(text, name)
    except ConfigError:
        return ""
    form = _form_of(found)
    if form is nvidia_device_plugin.FORM and not any(
        each.key or nvidia_device_plugin.is_wrapped(each.content) for each in found
    ):
        return ""
    return form.title if form else ""


def explained(bad: ConfigError) -> tuple[Problem, ...]:
    """Return the problems, with one for each file of another plugin, because vdev's own ones would be misleading.

    Files of layouts are not such files, although mig-parted has them too.
    """
    foreign: dict[str, Problem] = {}
    for file in dict.fromkeys(each.place.file for each in bad.problems if each.place):
        if file in bad.named:
            continue
        with contextlib.suppress(ConfigError):
            if form := recognized(config.text_of(Path(file)), file):
                message = f"this is a configuration of {form}; `vdev import {file}` converts it"
                foreign[file] = error(Where.of(Place(file)), message)
    own = (each for each in bad.problems if not each.place or each.place.file not in foreign)
    return (*foreign.values(), *own)


def imported(text: str, name: str, options: ImportOptions) -> list[Draft]:
    """Convert a text to vdev files. Raises UsageError or ConfigError if there is nothing to import."""
    if options.preset:
        config.load_preset(options.preset)  # raises an error if it is unknown
    found = sources(text, name)
    form = FORMS[options.form] if options.form else _form_of(found)
    if form is None:
        entries = [entry for each in found for entry in listed(mapping(each.content).get("devices"))]
        if any("resource" in mapping(entry) for entry in entries):
            raise UsageError(f"{name}: this is a configuration of vdev already; vdev validate checks it")
        known = ", ".join(each.title for each in FORMS.values())
        raise UsageError(f"{name}: unknown format; expected a configuration of {known}; set it with --from")
    own = [each for each in found if form.recognizes(each.content)]
    if not own:
        raise UsageError(f"{name}: this is not a configuration of {form.title}")
    drafts = []
    for file, content in form.files(own):
        draft = Draft(f"Made by vdev import of a configuration of {form.title}.", file)
        form.fill(draft, content, options)
        _check(draft)
        drafts.append(draft)
    others = (each.key for each in found if each.key and each not in own and each.content)
    for key in others if drafts else ():
        drafts[0].note("", f"{key!r} is left out, because it is not a valid configuration of {form.title}")
    if not any(draft.sections.get(each) for draft in drafts for each in SECTIONS):
        why = "".join(f"\n  {warning}" for draft in drafts for warning in draft.warnings)
        nothing = "nothing in it can be converted:" + why if why else "it declares nothing"
        raise UsageError(f"{name}: this is a configuration of {form.title}, but {nothing}")
    return drafts


def _form_of(found: Sequence[ImportSource]) -> Form | None:
    return next((form for form in FORMS.values() if any(form.recognizes(each.content) for each in found)), None)


def _check(draft: Draft) -> None:
    """Turn the parts that vdev would refuse into comments."""
    for item in draft.items:
        item.name_unread()
    while True:
        try:
            bad = errors(prove(config.load_text(draft.text, draft.name or "<imported>").spec))
        except ConfigError as refused:
            bad = errors(refused.problems)
        else:
            if not bad:
                return
            if "sharing" in draft.sections and bad[0].path[:1] == ("devices",):  # too many with their replicas
                draft.remove(("sharing",), bad[0].message)
                continue
        texts = ((each.path, each.message + f"; {each.hint}" * bool(each.hint)) for each in bad)
        if not any(path and draft.remove(path, why) for path, why in texts):  # each round removes something
            raise ConfigError(bad)
