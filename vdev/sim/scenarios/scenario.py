"""The schema of scenario files (pydantic models), and the built-in scenarios. `play` runs them on a node."""

import difflib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from ...errors import UsageError, VdevError, reason_of
from ..lint import unknown_code
from ..objects import yaml_text

# Placeholder keys in a scenario for the names that the plugin has registered.
RESOURCE: Final = "{resource}"
DRIVER: Final = "{driver}"
ANY: Final = "any"
REMEMBERED: Final = "remembered"
# Comparisons of an expected and a seen number by key, with their words in messages.
COMPARISONS: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "atLeast": (operator.le, "at least"),
    "lessThan": (operator.gt, "less than"),
}
POD_STEPS: Final = frozenset({"create_pod", "delete_pod", "force_delete_pod", "restart_container"})


class ScenarioFormatError(UsageError):
    """A scenario file is invalid. The text has the place of the error."""


class ScenarioError(VdevError):
    """A scenario failed. The text has the difference from the expectation."""


def _number(value: Any) -> Any:
    """Check for a number, `remembered`, or a comparison with one of them."""
    number = value
    if isinstance(value, Mapping) and len(value) == 1 and value.keys() <= COMPARISONS.keys():
        (number,) = value.values()
    if number == REMEMBERED or (isinstance(number, int) and not isinstance(number, bool) and number >= 0):
        return value
    raise ValueError("expected a number or remembered, or one of them in {atLeast: …} or {lessThan: …}")


def _both(value: Any) -> Any:
    """Expand `remembered` to both numbers of a resource."""
    return {"capacity": REMEMBERED, "allocatable": REMEMBERED} if value == REMEMBERED else value


def _codes(value: Any) -> frozenset[str]:
    """Parse the codes of forbidden warnings."""
    if value == "none":
        return frozenset()
    if not isinstance(value, list):
        raise ValueError("expected none, or a list of the codes of forbidden warnings")  # noqa: TRY004  # for pydantic
    if wrong := next(filter(None, map(unknown_code, map(str, value))), ""):
        raise ValueError(wrong)
    return frozenset(value)


def _pod(value: dict[str, Any]) -> dict[str, Any]:
    if "spec" not in value:
        raise ValueError("a Pod needs a spec")
    return {"apiVersion": "v1", "kind": "Pod", **value}


def _object(value: dict[str, Any]) -> dict[str, Any]:
    if missing := {"kind", "metadata"} - value.keys():
        raise ValueError(f"the object needs {min(missing)}")
    return {"apiVersion": "resource.k8s.io/v1", **value}


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        allowed = sorted(str(field.alias) for field in cls.model_fields.values())
        if isinstance(value, str) and value in allowed:
            raise ValueError(f"expected a mapping; write '{value}:' with a colon")
        if isinstance(value, Mapping) and (unknown := sorted(map(str, value.keys() - set(allowed)))):
            raise ValueError(f"unknown key {unknown[0]!r}; expected one of {', '.join(allowed)}")
        return value


class NodeNumbers(_Form):
    """The expected numbers of a resource in the node status."""

    capacity: Annotated[Any, AfterValidator(_number)]
    allocatable: Annotated[Any, AfterValidator(_number)]


# What a scenario can expect of a container: its status, and the edits of its last start.
_StatusKey: TypeAlias = Literal["devices", "deviceCounts", "deviceHealth", "claims", "restarts"]
_EditsKey: TypeAlias = Literal["env", "deviceNodes", "mounts", "annotations", "cdiDevices"]


class PodExpectation(_Form):
    """The expected status of a pod. Keys that are not set are not compared."""

    phase: Any = None
    reason: Any = None
    message: Any = None
    terminating: Any = None
    events: list[Any] = []
    containers: dict[str, dict[_StatusKey | _EditsKey, Any]] = {}


class Expect(_Form):
    """An expectation. All of it must be true at the same time, and then stay true for `stays` seconds.

    A text may be `{matches: pattern}`. A key may be `{resource}` or `{driver}`.
    """

    node: dict[str, Annotated[NodeNumbers, BeforeValidator(_both)]] = {}
    pods: dict[str, PodExpectation | None] = {}  # None: the pod must not exist
    registrations: dict[str, Annotated[Any, AfterValidator(_number)]] = {}
    unhealthy: dict[str, dict[str, Any]] = {}  # reasons of Unhealthy devices by resource and device id
    findings: Annotated[Any, AfterValidator(_codes)] = None  # codes of forbidden warnings; None allows all
    slices: dict[str, list[str] | Literal["any"] | None] = {}  # devices by driver; None: it must have no slice
    claims: dict[str, list[Any] | None] = {}  # allocated devices by name; None: no such claim
    drivers: dict[str, Annotated[Any, AfterValidator(_number)]] = {}  # the number of connected instances
    stays: float = Field(default=0, ge=0)

    @property
    def document(self) -> dict[str, Any]:
        """The expectation with only the keys in the file."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class ObjectName(_Form):
    """Identifies an object of the API server."""

    kind: str
    name: str
    namespace: str = ""


class Step(_Form):
    """A step with exactly one of these keys. Most steps are the node's method of that name."""

    expect: Expect = Expect()
    remember: None = None
    edit_configuration: str = ""
    hook: str = ""
    advance_clock: Annotated[float, Field(ge=0)] = 0  # seconds
    create_pod: str = ""
    delete_pod: str = ""
    force_delete_pod: str = ""
    restart_container: str = ""
    create_object: Annotated[dict[str, Any], AfterValidator(_object)] = {}
    delete_object: ObjectName = ObjectName(kind="", name="")
    restart_kubelet: None = None
    crash_kubelet: None = None
    start_kubelet: None = None
    restart_plugin: None = None
    stop_plugin: None = None
    start_plugin: None = None
    kill_plugin: None = None
    reboot_plugin_first: None = None
    reboot_kubelet_first: None = None
    roll_plugin: None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"expected one step, found {len(self.model_fields_set)}")
        return self

    @property
    def name(self) -> str:
        """The step's key in snake_case."""
        (name,) = self.model_fields_set
        return name

    @property
    def value(self) -> Any:
        return getattr(self, self.name)


class Scenario(_Form):
    title: str
    steps: list[Step]
    configuration: str = ""  # the plugin's first configuration
    pods: dict[str, Annotated[dict[str, Any], AfterValidator(_pod)]] = {}  # manifests by name
    objects: list[Annotated[dict[str, Any], AfterValidator(_object)]] = []  # created before the plugin starts
    # Features that the scenario needs and that a node of a real cluster may not have.
    requires: frozenset[
        Literal["clock", "kubelet", "plugin", "reboot", "reboot-kubelet-first", "dra", "roll", "kill", "hook"]
    ] = frozenset()
    # Pieces of hardware by device id. No two pods may hold the same piece at any time.
    hardware: dict[str, list[str]] = {}

    @model_validator(mode="after")
    def _pods_exist(self) -> Self:
        for number, step in enumerate(self.steps):
            if step.name in POD_STEPS and step.value not in self.pods:
                place = f"steps.{number}.{to_camel(step.name)}"
                raise ValueError(f"{place}: no pod {step.value!r}; there are {sorted(self.pods)}")
        return self

    @property
    def expectations(self) -> list[Expect]:
        return [step.value for step in self.steps if step.name == "expect"]

    def manifest(self, pod: str) -> dict[str, Any]:
        manifest = self.pods[pod]
        return {**manifest, "metadata": {**(manifest.get("metadata") or {}), "name": pod}}


def parse(document: Any) -> Scenario:
    """Validate the document of a scenario. Raises ScenarioFormatError with all errors."""
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        raise ScenarioFormatError("; ".join(_message(each) for each in error.errors())) from error


def _message(error: ErrorDetails) -> str:
    place = ".".join(map(str, error["loc"]))
    text = error["msg"].removeprefix("Value error, ")
    return f"{place}: {text}" if place else text


# --- files ------------------------------------------------------------------------------------------------------------

NAMES = (
    "registration",
    "pod",
    "kubelet-restart",
    "kubelet-crash",
    "plugin-restart",
    "plugin-crash",
    "stale-socket",
    "health",
    "dra-registration",
)
"""The built-in scenarios, in the order in which they run."""

_DIRECTORY = Path(__file__).parent / "files"
_LONGEST_STEP = 160  # characters of a step's text in a report


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    """A scenario with its name, its path and the text of its steps."""

    name: str
    path: Path
    scenario: Scenario
    lines: list[tuple[int, str]]  # line number and text of each step

    @property
    def hooks(self) -> list[str]:
        """The distinct names of the hooks that its steps run."""
        return list(dict.fromkeys(step.value for step in self.scenario.steps if step.name == "hook"))

    @property
    def is_dra(self) -> bool:
        return "dra" in self.scenario.requires


def find(name: str) -> ScenarioFile:
    """Load a built-in scenario by name, or a file by path. Blocks. Raises UsageError."""
    path = _DIRECTORY / f"{name}.yaml" if name in NAMES else Path(name)
    if not path.is_file():
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        known = f"built-in scenarios: {', '.join(NAMES)}"
        raise UsageError(f"scenario {name!r}: no such file, and no built-in scenario; {hint}{known}")
    return ScenarioFile(path.stem, path, load(path), _step_lines(path.read_text()))


def built_in() -> list[ScenarioFile]:
    """Load the built-in scenarios. Blocks."""
    return [find(name) for name in NAMES]


def load(path: Path) -> Scenario:
    """Read a scenario's file. Blocks. Raises ScenarioFormatError."""
    try:
        return parse(yaml_text.document(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioFormatError(f"{path}: cannot read the scenario: {reason_of(error)}") from error
    except (ScenarioFormatError, yaml.YAMLError) as error:
        hint = '; write a placeholder in quotes: "{resource}"' if "unhashable" in str(error) else ""
        raise ScenarioFormatError(f"{path.name}: {error}{hint}") from error


def _step_lines(text: str) -> list[tuple[int, str]]:
    """Return the line number of each step in a valid file, and its text as one line."""
    tree = yaml.compose(text, yaml.SafeLoader)
    assert tree is not None  # the file is valid
    (steps,) = (value for key, value in tree.value if key.value == "steps")
    found = []
    for node in steps.value:
        rows = text[node.start_mark.index : node.end_mark.index].splitlines()
        line = " ".join(" ".join(row for row in rows if not row.lstrip().startswith("#")).split())
        short = line if len(line) <= _LONGEST_STEP else f"{line[: _LONGEST_STEP - 1]}…"
        found.append((node.start_mark.line + 1, short))
    return found
