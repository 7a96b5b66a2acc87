"""Health probes over time: each device's probe has a task of its own, so that none waits for another.

`probes` holds the four probes, which block; `aio.blocking_calls` runs them in threads that may be abandoned; the
verdict is made by `core.health.thresholds`. Nothing here knows resources or the kubelet: the agent reads the
`verdicts` of its `HealthMonitor`.
"""

from .monitor import HealthMonitor, Target

__all__ = ["HealthMonitor", "Target"]
