"""Validates objects against Kubernetes' own schemas, if `kubernetes-validate` is installed."""

import functools
import json
from importlib import resources

SCHEMA = "1.36.0"
_NEW_EACH_TIME = {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"}  # the server sets them


def causes(document):
    """Return the schema errors of an object, as (field, message)."""
    return [("", text) for text in by_schema(document) or ()]


def by_schema(document):
    """Return the schema errors of an object as sentences; None if there is no schema for it."""
    new = {key: value for key, value in document.get("metadata", {}).items() if key not in _NEW_EACH_TIME}
    return _wrong(json.dumps(document | {"metadata": new}))


@functools.lru_cache(maxsize=4096)
def _wrong(text):
    """Validate an object by its text. Cached, because tests write the same objects many times."""
    document = json.loads(text)
    validator = _validator(document["apiVersion"], document["kind"])
    return None if validator is None else [f"{_at(each)}: {each.message}" for each in validator.iter_errors(document)]


def _at(error):
    return ".".join(map(str, error.absolute_path))


@functools.cache
def _validator(api_version, kind):
    """Return the validator of a kind; None if there is no schema for it, or if the package is not installed."""
    if not (folder := _schemas()):
        return None
    import jsonschema  # a slow import, which only some tests need

    group, _, version = api_version.rpartition("/")
    file = folder / ("-".join(part for part in (kind.lower(), group.partition(".")[0], version) if part) + ".json")
    if not file.is_file():
        return None
    schema = json.loads(file.read_text())
    _follow(schema, _definitions())
    return jsonschema.Draft202012Validator(schema)


@functools.cache
def _definitions():
    """Return the schemas that others refer to, by name."""
    found = json.loads((_schemas() / "_definitions.json").read_text())["$defs"]
    _follow(found, found)
    return found


def _follow(schema, definitions):
    """Replace each reference by its schema, because a validator would resolve it again for every value.

    Other keys next to a reference are descriptions, and are dropped.
    """
    for key, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if isinstance(value, dict) and isinstance(reference := value.get("$ref"), str):
            schema[key] = definitions[reference.rpartition("/")[2]]
        elif isinstance(value, dict | list):
            _follow(value, definitions)


@functools.cache
def _schemas():
    try:
        import kubernetes_validate  # optional, because it has 108 MB
    except ImportError:
        return None
    folder = resources.files(kubernetes_validate) / "kubernetes-json-schema" / f"v{SCHEMA}-local-strict"
    return folder if folder.is_dir() else None
