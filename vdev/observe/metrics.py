"""The agent's metrics, on their own registry.

Label values are bounded: resources and RPC names, never device ids or pods.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from .. import __version__

_LATENCIES = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0)  # each is a series per call, resource and result


class Metrics:
    """The agent's metrics. Created once per process, and passed to the code that updates them."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the number of series
        self.registry = CollectorRegistry()
        self.info = self._gauge("build_info", "1, labeled with the version", "version")
        self.info.labels(__version__).set(1)
        self.devices = self._gauge(
            "devices", "Devices listed to the kubelet, or published by a DRA driver", "resource", "health"
        )
        self.list_bytes = self._gauge(
            "list_bytes", "Bytes of the device list; the kubelet's limit is 4194304", "resource"
        )
        self.retired = self._gauge(
            "retired_devices", "Devices listed as Unhealthy only because a pod or claim may hold them", "resource"
        )
        self.drilled = self._gauge(
            "drill_devices", "Devices listed as Unhealthy by a fault rule, without retired ones", "resource"
        )
        self.held = self._gauge(
            "held_devices",
            "Devices that a pod (by PodResources) or a prepared claim holds",
            "resource",
        )
        self.claims = self._gauge("prepared_claims", "Claims that a DRA driver prepared", "resource")
        self.registered = self._gauge("registered", "Whether the resource is registered (1) or not (0)", "resource")
        self.streams = self._gauge("streams", "Open ListAndWatch streams", "resource")
        self.registrations = self._counter("registrations_total", "Successful registrations", "resource")
        self.health_changes = self._counter(
            "health_changes_total", "Devices that turned Healthy or Unhealthy", "resource", "health"
        )
        self.health_changed = self._gauge(
            "health_last_change_timestamp_seconds", "When a device last turned Healthy or Unhealthy", "resource"
        )
        self.flaps = self._counter(
            "device_flaps_total",
            "Times that a device disappeared or its probe began to fail",
            "resource",
        )
        self.actions = self._counter(
            "actions_total", "Ownership actions, by occasion and result", "resource", "occasion", "result"
        )
        self.rpc = Histogram(
            "vdev_rpc_seconds",
            "Duration of the kubelet's calls, by gRPC status",
            ("rpc", "resource", "code"),
            buckets=_LATENCIES,
            registry=self.registry,
        )
        self.reloads = self._counter("config_reloads_total", "Configurations read, by result", "result")
        self.reload_ok = self._gauge(
            "config_last_reload_successful",
            "Whether the last configuration that was read is applied as a whole (1) or not (0)",
        )
        self.reload_time = self._gauge(
            "config_last_reload_success_timestamp_seconds", "When a configuration was last applied"
        )
        self.faults_active = self._gauge("faults_active", "Injected faults in force now", "kind")
        self.faults_injected = self._counter(
            "faults_injected_total",
            "Faults injected, counted for each affected resource",
            "kind",
            "resource",
        )
        self.problems = self._gauge("problems", "Problems of configuration, discovery and agent", "severity")
        ProcessCollector(registry=self.registry)  # process_*: CPU time, memory, open files, start

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"vdev_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"vdev_{name}", text, labels, registry=self.registry)

    def forget(self, resource: str) -> None:
        for health in ("Healthy", "Unhealthy"):
            self.devices.remove(resource, health)
        of_resource = (self.list_bytes, self.retired, self.drilled, self.held, self.claims)
        for gauge in (*of_resource, self.registered, self.streams, self.health_changed):
            gauge.remove(resource)
