"""What Kubernetes refuses of the objects that vdev writes, with its words; where it lets something pass, this does not.

With `kubernetes-validate` installed each object must also be one by Kubernetes' own schemas.
"""

import functools
import json
import re
from importlib import resources

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUANTITY = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_CONDITION = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ALPHABET = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LONGEST, _LONGEST_PREFIX, _LONGEST_MESSAGE = 63, 253, 1024
_MOST_CONDITIONS = 8  # of a device in a claim's status
_STANDARD = {"cpu", "memory", "pods", "ephemeral-storage", "storage"}
SCHEMA = "1.36.0"


def causes(kind, document):
    """What is wrong with an object: (field, message) each."""
    metadata = document.get("metadata") or {}
    found = [*_labels("metadata.labels", metadata.get("labels") or {})]
    for key in metadata.get("annotations") or {}:
        found += [("metadata.annotations", text) for text in _key(key, key)]
    name = metadata.get("name", "")
    if len(name) > _LONGEST_PREFIX or not _SUBDOMAIN.fullmatch(name):
        found.append(("metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of …'))
    if kind == "Node":
        found += _node(document)
    if kind == "Event":
        found += _event(document)
    if kind == "ResourceClaim":
        found += _claim(document)
    return found + [("", text) for text in _by_schema(document)]


def _labels(field, labels):
    for key, value in labels.items():
        yield from ((field, text) for text in _key(key, key))
        if not isinstance(value, str):
            yield field, f"Invalid value: {json.dumps(value)}: must be a string"
        elif len(value) > _LONGEST:
            yield field, f'Invalid value: "{value}": must be no more than 63 bytes'
        elif value and not _NAME.fullmatch(value):
            yield field, f'Invalid value: "{value}": {_ALPHABET}'


def _key(key, shown):
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        yield f'Invalid value: "{shown}": prefix part must be non-empty'
    elif slash and (len(prefix) > _LONGEST_PREFIX or not _SUBDOMAIN.fullmatch(prefix)):
        yield f'Invalid value: "{shown}": prefix part a lowercase RFC 1123 subdomain must consist of …'
    if not name:
        yield f'Invalid value: "{shown}": name part must be non-empty'
    elif len(name) > _LONGEST:
        yield f'Invalid value: "{shown}": name part must be no more than 63 bytes'
    elif not _NAME.fullmatch(name):
        yield f'Invalid value: "{shown}": {_PART}'


def _node(document):
    status = document.get("status") or {}
    for field in ("capacity", "allocatable"):
        for name, quantity in (status.get(field) or {}).items():
            yield from ((f"status.{field}.{name}", text) for text in _resource(name, quantity))
    seen = set()
    for index, each in enumerate(status.get("conditions") or ()):
        at = f"status.conditions[{index}]"
        kind = each.get("type", "")
        if not _CONDITION.fullmatch(kind):
            yield f"{at}.type", f'Invalid value: "{kind}": must be a name'
        if kind in seen:
            yield f"{at}.type", f'Duplicate value: "{kind}"'
        seen.add(kind)
        if each.get("status") not in ("True", "False", "Unknown"):
            yield f"{at}.status", 'Unsupported value: supported values: "False", "True", "Unknown"'


def _resource(name, quantity):
    own = name in _STANDARD or name.startswith(("hugepages-", "attachable-volumes-"))
    if not isinstance(quantity, str) or not _QUANTITY.fullmatch(quantity):
        yield f"Invalid value: {json.dumps(quantity)}: quantities must match the regular expression …"
    elif not own and not quantity.isdigit():
        yield f'Invalid value: "{quantity}": must be an integer'
    if not own:
        if "/" not in name:
            yield f'Invalid value: "{name}": must be a standard resource type or fully qualified'
        yield from _key(name, name)


def _event(document):
    about = document.get("involvedObject") or {}
    namespace = (document.get("metadata") or {}).get("namespace", "")
    inside = about.get("namespace", "") or "default"
    if inside != namespace:
        yield "involvedObject.namespace", f'Invalid value: "{inside}": does not match event.namespace'
    for field in ("reason", "message"):
        if not document.get(field):
            yield field, "Required value"
    if len(document.get("message") or "") > _LONGEST_MESSAGE:
        yield "message", "Too long: may not be more than 1024 bytes"
    if document.get("type") not in ("Normal", "Warning"):
        yield "type", 'Invalid value: must be "Normal" or "Warning"'
    if not about.get("kind") or not about.get("name"):
        yield "involvedObject", "Required value: kind and name"
    if not (document.get("source") or {}).get("component") and not document.get("reportingComponent"):
        yield "reportingController", "Required value"
    if document.get("eventTime") and not all(document.get(each) for each in ("action", "reportingInstance")):
        yield "action", "Required value: with eventTime, action and reportingInstance as well"


def _claim(document):
    status = document.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    names = ("driver", "pool", "device", "shareID")
    allocated = [tuple(each.get(name) for name in names) for each in results]
    seen = set()
    for index, each in enumerate(status.get("devices") or ()):
        at, key = f"status.devices[{index}]", tuple(each.get(name) for name in names)
        if key not in allocated:
            yield at, f'Invalid value: "{"/".join(map(str, key[:3]))}": must be an allocated device in the claim'
        if key in seen:
            yield at, f'Duplicate value: "{"/".join(map(str, key[:3]))}"'
        seen.add(key)
        if len(each.get("conditions") or ()) > _MOST_CONDITIONS:
            yield f"{at}.conditions", f"Too many: must have at most {_MOST_CONDITIONS} items"
        for number, condition in enumerate(each.get("conditions") or ()):
            for name in ("type", "status", "reason", "lastTransitionTime"):
                if not condition.get(name):
                    yield f"{at}.conditions[{number}].{name}", "Required value"


def _by_schema(document):
    validator = _validator(document["apiVersion"], document["kind"])
    return [] if validator is None else [f"{_at(each)}: {each.message}" for each in validator.iter_errors(document)]


def _at(error):
    return ".".join(map(str, error.absolute_path))


@functools.cache
def _validator(api_version, kind):
    """The schema's; None where there is none, or no package of them."""
    if not (folder := _schemas()):
        return None
    import jsonschema  # with the schemas, only where tests write objects
    from referencing import Registry, Resource

    group, _, version = api_version.rpartition("/")
    file = folder / ("-".join(part for part in (kind.lower(), group.partition(".")[0], version) if part) + ".json")
    if not file.is_file():
        return None
    schema = json.loads(file.read_text())
    registry = Registry().with_resources(
        [(_definitions().id(), _definitions()), (file.name, Resource.from_contents(schema))]
    )
    return jsonschema.Draft202012Validator(schema, registry=registry)


@functools.cache
def _definitions():
    from referencing import Resource

    return Resource.from_contents(json.loads((_schemas() / "_definitions.json").read_text()))


@functools.cache
def _schemas():
    try:
        import kubernetes_validate  # 108 MB, which not everybody has who runs the tests
    except ImportError:
        return None
    folder = resources.files(kubernetes_validate) / "kubernetes-json-schema" / f"v{SCHEMA}-local-strict"
    return folder if folder.is_dir() else None
