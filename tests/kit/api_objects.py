"""What the API server of the tests stores: objects with versions, their owners, and all that happened to them."""

import asyncio
import copy
import datetime as dt
import itertools
import uuid
from dataclasses import dataclass

from tests.kit import api_validation
from tests.kit.api_fields import Owners, shown


class Refused(Exception):
    """An answer that is a no, as a Status."""

    def __init__(self, status, reason, message, **details):
        super().__init__(message)
        self.status = status
        self.document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": status,
        }


@dataclass(frozen=True)
class Stored:
    """A kind that the server serves; `selectable` are its fields for selectors, besides the name."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    status: bool = False
    selectable: tuple = ()

    @property
    def api_version(self):
        """As in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full(self):
        """As messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_ABOUT = tuple(f"involvedObject.{each}" for each in ("kind", "name", "namespace", "uid"))
KINDS = (
    Stored("", "v1", "Node", "nodes", namespaced=False, status=True, selectable=("spec.unschedulable",)),
    Stored("", "v1", "Pod", "pods", namespaced=True, status=True, selectable=("spec.nodeName", "status.phase")),
    Stored("", "v1", "Event", "events", namespaced=True, selectable=("reason", "type", *_ABOUT)),
    Stored("", "v1", "ConfigMap", "configmaps", namespaced=True),
    Stored(
        "resource.k8s.io",
        "v1",
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        selectable=("spec.nodeName", "spec.driver"),
    ),
    Stored("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False),
    Stored("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", namespaced=True, status=True),
)


@dataclass(frozen=True)
class Happened:
    """One change: `old` None for a new object, `new` None for one that is gone."""

    version: int
    kind: Stored
    old: dict | None
    new: dict | None


def _anything(_old, _new):
    """Whatever changes is allowed."""


class Objects:
    """All objects, by kind, namespace and name."""

    def __init__(self):
        self.version = 1000
        self.forgotten = 0  # versions below this one
        self.history = []
        self.news = asyncio.Condition()
        self.namespaces = {"default", "kube-system", "vdev-system"}
        self._found = {}
        self._owners = {}
        self._serial = itertools.count(1)

    def get(self, kind, namespace, name):
        """The object. Raises Refused."""
        found = self._found.get((kind.plural, namespace, name))
        if found is None:
            raise Refused(404, "NotFound", f'{kind.full} "{name}" not found', name=name, kind=kind.plural)
        return found

    def all(self, kind, namespace=""):
        """The objects of a kind, by namespace and name."""
        found = sorted((key, each) for key, each in self._found.items() if key[0] == kind.plural)
        return [each for key, each in found if not namespace or key[1] == namespace]

    def create(self, kind, namespace, document, manager):
        """A new object."""
        document = copy.deepcopy(document)
        metadata = document.setdefault("metadata", {})
        if metadata.get("resourceVersion"):
            raise Refused(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{next(self._serial):05d}"
        name = metadata.get("name", "")
        if (kind.plural, namespace, name) in self._found:
            raise Refused(409, "AlreadyExists", f'{kind.full} "{name}" already exists', name=name, kind=kind.plural)
        self._home(kind, namespace, metadata)
        if kind.status:
            document.pop("status", None)
        owners = Owners()
        owners.update((manager, "Update", ""), kind.api_version, {}, document)
        return self._store(kind, namespace, name, {}, document, owners)

    def change(self, kind, namespace, name, new, manager, subresource, *, check=_anything):
        """An object after a patch or a PUT, of which the part counts that the subresource is for.

        `check` is given the object before and after, and raises Refused.
        """
        old = self.get(kind, namespace, name)
        new = self._part(kind, old, new, subresource)
        if kind.kind == "ResourceClaim" and subresource == "status":
            new = _without_deallocated(old, new)
        check(old, new)
        owners = self._owners[kind.plural, namespace, name].copy()
        owners.update((manager, "Update", subresource), kind.api_version, old, new)
        return self._store(kind, namespace, name, old, new, owners)

    def replace(self, kind, namespace, name, document, manager, subresource, *, check=_anything):
        """An object after a PUT, which must say which version of it was read."""
        old = self.get(kind, namespace, name)
        metadata = document.get("metadata") or {}
        if metadata.get("name") != name:
            raise Refused(400, "BadRequest", "the name of the object does not match the name on the URL")
        if not metadata.get("resourceVersion"):
            text = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise Refused(422, "Invalid", f'{kind.kind} "{name}" is invalid: {text}', name=name, kind=kind.kind)
        if metadata["resourceVersion"] != old["metadata"]["resourceVersion"]:
            text = "the object has been modified; please apply your changes to the latest version and try again"
            said = f'Operation cannot be fulfilled on {kind.full} "{name}": {text}'
            raise Refused(409, "Conflict", said, name=name, kind=kind.plural)
        return self.change(kind, namespace, name, copy.deepcopy(document), manager, subresource, check=check)

    def apply(self, kind, namespace, name, document, manager, subresource, *, force, check=_anything):
        """An object after a server-side apply."""
        if (document.get("metadata") or {}).get("managedFields"):
            raise Refused(400, "BadRequest", "metadata.managedFields must be nil")
        key = kind.plural, namespace, name
        old = self._found.get(key)
        if old is None:
            if subresource:
                self.get(kind, namespace, name)
            old, owners = {}, Owners()
        else:
            owners = self._owners[key].copy()
        applied = self._applied(kind, document, subresource)
        whole = (manager, "Apply", subresource)
        new, clashes = owners.apply(whole, kind.api_version, old, applied, force=force)
        if clashes:
            raise _conflict(clashes, kind.api_version)
        check(old, new)
        if not old:
            self._home(kind, namespace, new.setdefault("metadata", {}))
        return self._store(kind, namespace, name, old, new, owners)

    def delete(self, kind, namespace, name, uid):
        """The object that was deleted."""
        found = self.get(kind, namespace, name)
        is_uid = found["metadata"]["uid"]
        if uid and uid != is_uid:
            text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {is_uid}"
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {kind.full} "{name}": {text}', name=name)
        del self._found[kind.plural, namespace, name], self._owners[kind.plural, namespace, name]
        self.version += 1
        gone = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.version)}}
        self.history.append(Happened(self.version, kind, found, None))
        return gone

    # --- what is stored -----------------------------------------------------------------------------------------------

    def _home(self, kind, namespace, metadata):
        if kind.namespaced:
            if namespace not in self.namespaces:
                raise Refused(404, "NotFound", f'namespaces "{namespace}" not found', name=namespace, kind="namespaces")
            if metadata.setdefault("namespace", namespace) != namespace:
                raise Refused(400, "BadRequest", "the namespace of the provided object does not match the request")
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = _now()

    def _part(self, kind, old, new, subresource):
        """A changed object with only those changes that go through this door."""
        self._same(kind, old, new)
        if subresource:
            return {**old, "status": new["status"]} if "status" in new else _without_status(old)
        if not kind.status:
            return new
        return {**_without_status(new), **({"status": old["status"]} if "status" in old else {})}

    def _applied(self, kind, document, subresource):
        metadata = document.get("metadata") or {}
        if subresource:
            return {"status": document["status"]} if "status" in document else {}
        kept = {name: value for name, value in document.items() if name != "status" or not kind.status}
        return kept | {"metadata": metadata} if metadata else kept

    def _same(self, kind, old, new):
        """What a change must leave as it is."""
        was, now = old["metadata"], new.get("metadata") or {}
        name = was["name"]
        if now.get("resourceVersion") not in (None, was["resourceVersion"]):
            text = "the object has been modified; please apply your changes to the latest version and try again"
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {kind.full} "{name}": {text}', name=name)
        for field in ("name", "uid", "namespace"):
            if now.get(field) != was.get(field):
                text = f"metadata.{field}: Invalid value: {now.get(field)!r}: field is immutable"
                raise _invalid(kind, name, [(f"metadata.{field}", text)])

    def _store(self, kind, namespace, name, old, new, owners):
        new = copy.deepcopy({"apiVersion": kind.api_version, "kind": kind.kind, **new})
        metadata = new["metadata"]
        metadata["managedFields"] = owners.entries()
        if old and _content(new) == _content(old):
            return old
        metadata["resourceVersion"] = str(self.version + 1)
        if wrong := api_validation.causes(kind.kind, new):
            raise _invalid(kind, name, wrong)
        self.version += 1
        self._found[kind.plural, namespace, name] = new
        self._owners[kind.plural, namespace, name] = owners
        self.history.append(Happened(self.version, kind, old or None, new))
        return new

    async def newer(self, version):
        """Wait until there is a newer version."""
        async with self.news:
            await self.news.wait_for(lambda: self.version > version)

    async def tell(self):
        """Wake those who watch."""
        async with self.news:
            self.news.notify_all()


def _without_deallocated(old, new):
    """A claim without the status of devices that it was allocated before and is not now: that goes by itself."""
    was, now = _allocated(old), _allocated(new)
    status = new.get("status") or {}
    kept = [each for each in status.get("devices") or () if _device(each) in now or _device(each) not in was]
    if kept == (status.get("devices") or []):
        return new
    return new | {"status": {key: each for key, each in status.items() if key != "devices"} | {"devices": kept}}


def _allocated(claim):
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {_device(each) for each in (allocation.get("devices") or {}).get("results") or ()}


def _device(each):
    return tuple(each.get(name) for name in ("driver", "pool", "device", "shareID"))


def _without_status(document):
    return {name: value for name, value in document.items() if name != "status"}


def _content(document):
    return {**document, "metadata": {**document["metadata"], "resourceVersion": ""}}


def _now():
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _invalid(kind, name, wrong):
    found = [{"reason": "FieldValueInvalid", "message": text, "field": field} for field, text in wrong]
    said = ", ".join(f"{field}: {text}" for field, text in wrong)
    text = f'{kind.kind} "{name}" is invalid: {said if len(wrong) == 1 else f"[{said}]"}'
    return Refused(422, "Invalid", text, name=name, kind=kind.kind, causes=found)


def _conflict(clashes, version):
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_named(each, version)}", "field": shown(path)}
        for each, path in clashes
    ]
    if len(clashes) == 1:
        said = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = []
        for each in dict.fromkeys(manager for manager, _ in clashes):
            lines.append(f"conflicts with {_named(each, version)}:")
            lines += [f"- {shown(path)}" for manager, path in clashes if manager == each]
        said = f"{len(clashes)} conflicts: " + "\n".join(lines)
    return Refused(409, "Conflict", f"Apply failed with {said}", causes=causes)


def _named(manager, version):
    name, operation, subresource = manager
    text = f'"{name}"' + (f' with subresource "{subresource}"' if subresource else "")
    return text if operation == "Apply" else f"{text} using {version}"
