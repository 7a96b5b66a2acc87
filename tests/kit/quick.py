"""Shorter intervals for an agent and a kubelet in a test.

These intervals must not decide races that a test checks.
"""

from vdev.sim import Timings

KUBELET = Timings(boot=0.01, lead=0.01, look=0.02, sources=0.1)
INTERVALS = {
    "retire_settle": 0.2,
    "retire_recheck": 0.1,
    "repartition_recheck": 0.1,
    "kubelet_grace": 0.2,
    "admission": 0.1,
    "unnamed_allocate": 0.3,
    "look_at_holders_for_actions": 0.2,
    "retry_host_files": 0.1,
    "write_tools": 0.1,
    "empty_list": 0.3,
    "retire_handover": 0.4,
    "know_label_again": 0.2,
    "api_pause_first": 0.02,
    "api_pause_most": 0.2,
    "first_reading": 0.3,
    "name_holder": 0.1,
    "retry_step_first": 0.1,
    "look_for_directory": 0.05,
    "look_for_stream": 0.02,
}
