"""Every chart value has an effect, and invalid values are refused."""

import copy

import pytest
import yaml

import vdev
from tests.kit.manifests import CHART, charted, helm, one, pod_of, validate

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
DIGEST = "sha256:" + "0" * 64
OTHER_PATH = "/srv/elsewhere"
# name: (a value other than the default, text that it adds to the objects, other values that it needs)
EFFECTS = {
    "image.repository": ("registry.example/vdev", "image: registry.example/vdev:", {}),
    "image.tag": ("v9", "image: vdev:v9", {}),
    "image.digest": (DIGEST, f"image: vdev@{DIGEST}", {}),
    "image.pullPolicy": ("Always", "imagePullPolicy: Always", {}),
    "imagePullSecrets": ([{"name": "pull"}], "imagePullSecrets:\n      - name: pull", {}),
    "nameOverride": ("devices", "name: vdev-devices\n", {}),
    "fullnameOverride": ("mine", "name: mine\n", {}),
    "config": ({"a.yaml": "version: v1\n"}, "a.yaml:", {}),
    "existingConfigMap": ("theirs", "name: theirs", {}),
    "agent.enabled": (False, "kind: Deployment", {"fleet": {"enabled": True}}),
    "fleet.enabled": (True, "kind: Deployment", {}),
    "fleet.config": ("version: v1 # mine", "version: v1 # mine", {"fleet": {"enabled": True}}),
    "fleet.existingConfigMap": ("theirs", "name: theirs", {"fleet": {"enabled": True}}),
    "fleet.ownNodesOnly.enabled": (True, "kind: ValidatingAdmissionPolicy", {"fleet": {"enabled": True}}),
    "fleet.ownNodesOnly.labels.type": (
        "fake",
        "metadata.labels['type'] == 'fake'",
        {"fleet": {"enabled": True, "ownNodesOnly": {"enabled": True}}},
    ),
    "fleet.extraArgs": (["--log-format=json"], "--log-format=json", {"fleet": {"enabled": True}}),
    "fleet.resources.requests.cpu": ("77m", "cpu: 77m", {"fleet": {"enabled": True}}),
    "fleet.resources.requests.memory": ("77Mi", "memory: 77Mi", {"fleet": {"enabled": True}}),
    "fleet.resources.limits.memory": ("777Mi", "memory: 777Mi", {"fleet": {"enabled": True}}),
    "fleet.nodeSelector.kubernetes.io/os": ("plan9", "kubernetes.io/os: plan9", {"fleet": {"enabled": True}}),
    "fleet.tolerations": ([{"key": "mine", "operator": "Exists"}], "key: mine", {"fleet": {"enabled": True}}),
    "fleet.affinity": ({"podAffinity": {}}, "podAffinity:", {"fleet": {"enabled": True}}),
    "migStrategy": ("mixed", "--mig-strategy=mixed", {}),
    "deviceListStrategy": (["envvar", "volume-mounts"], "--device-list-strategy=envvar,volume-mounts", {}),
    "deviceIDStrategy": ("index", "--device-id-strategy=index", {}),
    "passDeviceSpecs": (False, "--pass-device-specs=false", {}),
    "failOnInitError": (False, "--fail-on-init-error=false", {}),
    "sharedDevicesAllocationPolicy": ("packed", "--shared-devices-allocation-policy=packed", {}),
    "nodeLabel.enabled": (True, "name: vdev-node-label", {}),
    "node.labels": (True, "name: vdev-node-labels", {}),
    "node.features": (True, "/etc/kubernetes/node-feature-discovery/features.d", {}),
    "node.status": (True, "name: vdev-node-status", {}),
    "node.events": (True, "name: vdev-node-events", {}),
    "migConfig.enabled": (True, "name: vdev-mig-config", {}),
    "ownNodeOnly.enabled": (True, "kind: ValidatingAdmissionPolicy", {}),
    "hostDevices.enabled": (True, "--host-root=/host", {}),
    "standIns.enabled": (True, "MKNOD", {}),
    "standIns.directory": (OTHER_PATH, f"--device-dir={OTHER_PATH}", {"standIns": {"enabled": True}}),
    "cdi.enabled": (True, "--device-list-strategy=cdi-cri", {}),
    "cdi.directory": (OTHER_PATH, f"path: {OTHER_PATH}", {"cdi": {"enabled": True}}),
    "cdi.strategy": ("cdi-annotations", "=cdi-annotations", {"cdi": {"enabled": True}}),
    "dra.enabled": (True, "plugins_registry", {}),
    "dra.drivers": (["mine.example"], "mine.example", {"dra": {"enabled": True}}),
    "faultInjection.enabled": (True, "--enable-fault-injection", {}),
    "telemetry.enabled": (True, "name: vdev-telemetry", {}),
    "telemetry.port": (9999, "containerPort: 9999", {"telemetry": {"enabled": True}}),
    "telemetry.podAnnotations": (True, "name: vdev-pod-load", {}),
    "telemetry.serviceMonitor.enabled": (True, "kind: ServiceMonitor", {}),
    "telemetry.serviceMonitor.interval": ("7s", "interval: 7s", {"telemetry": {"serviceMonitor": {"enabled": True}}}),
    "telemetry.serviceMonitor.honorLabels": (
        True,
        "honorLabels: true",
        {"telemetry": {"serviceMonitor": {"enabled": True}}},
    ),
    "telemetry.serviceMonitor.labels": (
        {"release": "prom"},
        "release: prom",
        {"telemetry": {"serviceMonitor": {"enabled": True}}},
    ),
    "podMonitor.enabled": (True, "kind: PodMonitor", {}),
    "podMonitor.interval": ("7s", "interval: 7s", {"podMonitor": {"enabled": True}}),
    "podMonitor.labels": ({"release": "prom"}, "release: prom", {"podMonitor": {"enabled": True}}),
    "prometheusRule.enabled": (True, "alert: VdevDevicesUnhealthy", {}),
    "prometheusRule.labels": ({"role": "alerts"}, "role: alerts", {"prometheusRule": {"enabled": True}}),
    "extraArgs": (["--http-hosts=a.example"], "--http-hosts=a.example", {}),
    "extraEnv": ([{"name": "MPS_ROOT", "value": "/mps"}], "name: MPS_ROOT", {}),
    "extraVolumes": ([{"name": "more", "emptyDir": {}}], "name: more", {}),
    "extraVolumeMounts": (
        [{"name": "more", "mountPath": OTHER_PATH}],
        f"mountPath: {OTHER_PATH}",
        {"extraVolumes": [{"name": "more", "emptyDir": {}}]},
    ),
    "logLevel": ("debug", "--log-level=debug", {}),
    "httpPort": (9998, "--http-address=:9998", {}),
    "kubelet.devicePlugins": (OTHER_PATH, f"path: {OTHER_PATH}", {}),
    "kubelet.podResources": (OTHER_PATH, f"path: {OTHER_PATH}", {}),
    "stateDirectory": (OTHER_PATH, f"path: {OTHER_PATH}", {}),
    "resources.requests.cpu": ("77m", "cpu: 77m", {}),
    "resources.requests.memory": ("77Mi", "memory: 77Mi", {}),
    "resources.limits.memory": ("777Mi", "memory: 777Mi", {}),
    "priorityClassName": ("mine", "priorityClassName: mine", {}),
    "maxSurge": ("50%", "maxSurge: 50%", {}),
    "nodeSelector.kubernetes.io/os": ("plan9", "kubernetes.io/os: plan9", {}),
    "tolerations": ([{"operator": "Exists"}], "tolerations:\n      - operator: Exists", {}),
    "affinity": ({"nodeAffinity": {}}, "affinity:", {}),
    "podAnnotations": ({"a.example/b": "c"}, "a.example/b: c", {}),
    "podLabels": ({"team": "devices"}, "team: devices", {}),
    "serviceAccount.create": (False, "serviceAccountName: theirs", {"serviceAccount": {"name": "theirs"}}),
    "serviceAccount.name": ("theirs", "serviceAccountName: theirs", {}),
    "serviceAccount.annotations": ({"role.example/arn": "x"}, "role.example/arn: x", {}),
    "podSecurityContext.runAsUser": (7, "runAsUser: 7", {}),
    "podSecurityContext.runAsGroup": (7, "runAsGroup: 7", {}),
    "podSecurityContext.seccompProfile.type": ("Unconfined", "type: Unconfined", {}),
    "securityContext.allowPrivilegeEscalation": (True, "allowPrivilegeEscalation: true", {}),
    "securityContext.privileged": (True, "privileged: true", {}),
    "securityContext.readOnlyRootFilesystem": (False, "readOnlyRootFilesystem: false", {}),
    "securityContext.capabilities.drop": (["NET_RAW"], "NET_RAW", {}),
}


def leaves(values, path=()):
    """The path and value of every leaf of the chart's values."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def path_of(name):
    return next(path for path, _ in leaves(VALUES) if ".".join(path) == name)


def with_value(values, path, value):
    """A copy of the values with the value at `path` replaced."""
    changed = copy.deepcopy(values)
    inner = changed
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = value
    return changed


def text_of(objects):
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump_all(objects, Dumper=dumper, default_flow_style=False, width=1000)


def merged(values, others):
    """Deep-merge `others` into `values`."""
    result = dict(values)
    for key, value in others.items():
        result[key] = merged(values.get(key, {}), value) if isinstance(value, dict) else value
    return result


def test_the_table_covers_every_value():
    assert {".".join(path) for path, _ in leaves(VALUES)} == EFFECTS.keys()


# Values that change the effect of others. All remaining values are tested together, as one values file.
ALONE = {
    "agent.enabled", "standIns.enabled", "cdi.strategy", "existingConfigMap", "fleet.existingConfigMap",
    "fullnameOverride", "nameOverride", "image.digest", "image.tag", "serviceAccount.create", "serviceAccount.name",
    "deviceListStrategy", "securityContext.allowPrivilegeEscalation", "securityContext.capabilities.drop",
}  # fmt: skip


@helm
def test_a_value_has_an_effect(subtests):
    """Each value adds the expected text to the objects, and they stay valid."""
    before, together = text_of(charted()), {}
    for name in EFFECTS:
        value, _, others = EFFECTS[name]
        if name not in ALONE:
            together = with_value(merged(together, others), path_of(name), value)
    everything = charted(together)
    validate(everything)
    for name in EFFECTS:
        with subtests.test(name=name):
            value, shown, others = EFFECTS[name]
            if name not in ALONE:
                assert shown in text_of(everything)
                assert shown not in before
                continue
            after = charted(with_value(others, path_of(name), value))
            validate(after)
            text, former = text_of(after), text_of(charted(others))
            assert shown in text
            assert former != text
            if name not in {"serviceAccount.create", "agent.enabled"}:  # these two remove objects
                assert shown not in former


@helm
def test_invalid_values_are_refused(subtests):
    """Values that no cluster or agent accepts fail when the chart is rendered."""
    from helm_python import errors

    cases = [
        ({"dra": {"drivers": ["Mine"]}}, "drivers"),
        ({"image": {"digest": "md5:1"}}, "digest"),
        ({"logLevel": "loud"}, "logLevel"),
        ({"httpPort": 0}, "httpPort"),
        ({"fullnameOverride": "n" * 53}, "fullnameOverride"),  # suffixes such as "-own-node-only" follow
        ({"podMonitor": {"interval": "often"}}, "interval"),
        ({"securityContext": {"capabilities": {"drop": "ALL"}}}, "drop"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "effect"),
        ({"deviceListStrategy": ["cdi"]}, "deviceListStrategy"),
        ({"deviceListStrategy": ["envvar", "cdi-cri"]}, r"set cdi\.enabled"),
        ({"config": {"default.yaml": {"version": "v1"}}}, "config"),
        ({"config": {"a.yaml": ""}, "existingConfigMap": "b"}, "one place"),
        ({"serviceAccount": {"create": False}}, r"serviceAccount\.name"),
        ({"telemetry": {"enabled": True, "port": 8080}}, "telemetry.port and httpPort are the same"),
        ({"fleet": {"enabled": True}, "telemetry": {"port": 8080}}, "telemetry.port and httpPort are the same"),
        ({"podLabels": {"app.kubernetes.io/name": "mine"}}, "podLabels has app.kubernetes.io/name"),
        ({"podLabels": {"app.kubernetes.io/instance": "mine"}}, "podLabels has app.kubernetes.io/instance"),
    ]
    for values, why in cases:
        with subtests.test(values=values), pytest.raises(errors.HelmError, match=why):
            charted(values)
    charted({"deviceListStrategy": "cdi-cri", "dra": {"enabled": True}})  # dra mounts the CDI directory too


@helm
def test_an_existing_service_account():
    """The chart does not create it, and refers to it in the role bindings and the policy."""
    values = {"serviceAccount": {"create": False, "name": "theirs"}, "node": {"events": True}}
    objects = charted(values | {"ownNodeOnly": {"enabled": True}})
    assert "ServiceAccount" not in {each["kind"] for each in objects}
    subjects = [each["subjects"] for each in objects if each["kind"].endswith("RoleBinding")]
    expected = [{"kind": "ServiceAccount", "name": "theirs", "namespace": "vdev-system"}]
    assert [expected, expected] == subjects
    (condition,) = one(objects, "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert condition["expression"].endswith("'system:serviceaccount:vdev-system:theirs'")


@helm
def test_the_api_accepts_a_privileged_pod():
    """The API refuses `privileged` together with allowPrivilegeEscalation: false, so the chart omits the latter."""
    (container,) = pod_of(charted({"securityContext": {"privileged": True}, "standIns": {"enabled": True}}))[
        "containers"
    ]
    assert {"privileged": True, "readOnlyRootFilesystem": True} == container["securityContext"]


@helm
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("cdi-annotations", {"--device-list-strategy=cdi-annotations"}),
        (["envvar", "cdi-annotations"], {"--device-list-strategy=envvar,cdi-annotations"}),
        ("envvar", {"--device-list-strategy=cdi-cri", "--device-list-strategy=envvar"}),
    ],
)
def test_a_device_has_one_cdi_strategy(given, shown):
    """A CDI strategy in deviceListStrategy replaces the default of cdi.strategy."""
    args = pod_of(charted({"cdi": {"enabled": True}, "deviceListStrategy": given}))["containers"][0]["args"]
    assert shown == {each for each in args if "device-list-strategy" in each}


@helm
def test_the_pod_monitor():
    """It selects the DaemonSet's pods and their port, and adds the node's name to each series."""
    objects = charted({"podMonitor": {"enabled": True}, "nameOverride": "devices"})
    monitor, daemonset = one(objects, "PodMonitor"), one(objects, "DaemonSet")
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert daemonset["metadata"]["namespace"] == monitor["metadata"]["namespace"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {each["name"] for each in pod_of(objects)["containers"][0]["ports"]}
    relabeling = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node", "action": "replace"}
    assert [relabeling] == endpoint["relabelings"]


@helm
def test_prometheus_rules_are_those_of_alerts_yaml():
    rule = one(charted({"prometheusRule": {"enabled": True}}), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART.parents[1] / "monitoring" / "alerts.yaml").read_text())


@helm
def test_tolerations():
    """The agent tolerates the taints that NVIDIA's chart tolerates and those of other vendors with presets."""
    tolerated = {each["key"] for each in pod_of(charted())["tolerations"]}
    presets = (CHART.parents[2] / "vdev" / "presets").glob("*.yaml")
    makers = {preset.get("resource") for preset in (yaml.safe_load(path.read_text()) for path in presets)} - {None}
    assert {"CriticalAddonsOnly", *makers} == tolerated


@helm
def test_the_notes_mention_an_image_without_a_registry():
    from helm_python import Chart

    with Chart.load(CHART) as chart:
        notes, other = (
            chart.render({"image": {"repository": name}}, name="vdev", namespace="x")["vdev/templates/NOTES.txt"]
            for name in ("vdev", "registry.example/vdev")
        )
    assert f"The image vdev:{vdev.__version__} is in no registry" in notes
    assert "no registry" not in other
