"""Metrics have the names, types, labels and order of the vendors' exporters, and Prometheus reads them."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.measured import measured
from tests.kit.promtool import evaluate, promtool
from vdev.telemetry.exporters import escaped, page

NVIDIA = """
flags: {migStrategy: mixed}
telemetry: {}
devices:
- name: a100
  resource: nvidia.com/gpu
  virtual: {preset: a100-sxm4-40gb, count: 3}
  partitions: {"2": [1g.5gb, 3g.20gb]}
"""
AMD = """
telemetry: {}
flags: {migStrategy: mixed}
devices:
- name: mi
  resource: amd.com/gpu
  virtual: {preset: mi300x, count: 2}
  partitions: {"1": cpx_nps4}
"""
OTHER = """
telemetry: {}
devices:
- {name: npu, resource: acme.dev/npu, virtual: {count: 2, memory: 16Gi}}
"""
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
DEFAULT = [
    *("SM_CLOCK", "MEM_CLOCK", "MEMORY_TEMP", "GPU_TEMP", "POWER_USAGE", "PCIE_REPLAY_COUNTER", "GPU_UTIL"),
    *("MEM_COPY_UTIL", "ENC_UTIL", "DEC_UTIL", "XID_ERRORS", "FB_FREE", "FB_USED", "FB_RESERVED"),
    *("UNCORRECTABLE_REMAPPED_ROWS", "CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_FAILURE", "NVLINK_BANDWIDTH_TOTAL"),
    *("VGPU_LICENSE_STATUS", "TOTAL_ENERGY_CONSUMPTION"),
]
PROFILED = ["GR_ENGINE_ACTIVE", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE", "PCIE_TX_BYTES", "PCIE_RX_BYTES"]
DASHBOARD = {  # of Grafana's dashboard 12239
    'DCGM_FI_DEV_GPU_TEMP{instance=~".*", gpu=~".*"}': 3,
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~".*", gpu=~".*"})': 1,
    'DCGM_FI_DEV_POWER_USAGE{instance=~".*", gpu=~".*"}': 3,
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~".*", gpu=~".*"})': 1,
    'DCGM_FI_DEV_SM_CLOCK{instance=~".*", gpu=~".*"} * 1000000': 3,
    'DCGM_FI_DEV_GPU_UTIL{instance=~".*", gpu=~".*"}': 3,
    'DCGM_FI_DEV_FB_USED{instance=~".*", gpu=~".*"}': 3,
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~".*", gpu=~".*"}': 3,
}
RULES = {  # of alerts and autoscalers in vendors' documents, with the number of resulting series
    "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)": 3,
    'avg by (pod) (DCGM_FI_DEV_GPU_UTIL{pod!=""})': 2,
    "DCGM_FI_DEV_XID_ERRORS > 0": 0,
    "sum by (Hostname) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)": 1,
    "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m]) / 1000": 3,
}
OF_AMD = {
    'avg(gpu_gfx_busy_instantaneous{hostname="node-1", card_model=~"102-G30211-00|102-G30211-0C"})': 1,
    'sum(gpu_package_power{hostname="node-1"}) or vector(0)': 1,
    'avg(gpu_junction_temperature{hostname="node-1"})': 1,
    'avg(gpu_memory_temperature{hostname="node-1"})': 1,
    'sum(gpu_used_vram{hostname="node-1"})': 1,
    'sum(gpu_total_vram{hostname="node-1"})': 1,
    'sum(delta(gpu_energy_consumed{hostname="node-1"}[1m]))': 1,
    'sum(delta(gpu_ecc_correct_total{hostname="node-1"}[1m]))': 1,
    'sum(delta(pcie_replay_count{hostname="node-1"}[1m]))': 1,
    'sum(pcie_bandwidth{hostname="node-1"})': 1,
    'count(gpu_health{hostname="node-1"} == 1)': 1,
    'count_values("count", pcie_max_speed)': 1,
    "sum(gpu_nodes_total)": 1,
    'sum(group by(pod) (gpu_gfx_busy_instantaneous{pod!=""}))': 1,
    "topk(5, gpu_used_vram)": 2,
}


def shown(config, label="Hostname", **situation):
    """The metrics of a configuration's devices."""
    return page([("node-1", measured(config, **situation))], label)


def lines(page, name):
    return [line for line in page.splitlines() if re.match(rf"{name}[{{ ]", line)]


def read(page):
    """The values by name and labels, as Prometheus' Python parser reads them."""
    samples = [each for family in text_string_to_metric_families(page) for each in family.samples]
    written = set(re.findall(r"^(\w+)\{", page, re.MULTILINE))  # the parser appends _total to counters
    found = {
        (
            each.name if each.name in written else each.name.removesuffix("_total"),
            *sorted(each.labels.items()),
        ): each.value
        for each in samples
    }
    assert len(found) == len(samples), "a series is given twice"
    return found


def test_labels_of_a_line():
    """They are in the exporter's order, with those of the pod sorted at the end."""
    page = shown(NVIDIA, users={(GPU, 0): ["ml/train/main"]})
    line, other = lines(page, "DCGM_FI_DEV_SM_CLOCK")[:2]
    assert re.fullmatch(
        r'DCGM_FI_DEV_SM_CLOCK\{gpu="0",UUID="GPU-[-0-9a-f]{36}",pci_bus_id="00000000:01:00.0",device="nvidia0",'
        r'modelName="NVIDIA A100-SXM4-40GB",Hostname="node-1",DCGM_FI_DRIVER_VERSION="580.95.05",'
        r'container="main",namespace="ml",pod="train"\} 1410',
        line,
    )
    assert other.endswith('Hostname="node-1",DCGM_FI_DRIVER_VERSION="580.95.05"} 210')


def test_hostname_label():
    """Since 4.8.3, the exporter names it hostname."""
    assert ',hostname="node-1",' in lines(shown(NVIDIA, "hostname"), "DCGM_FI_DEV_GPU_TEMP")[0]


def test_all_metrics_of_a_default_install_are_there():
    page = shown(NVIDIA, users={(GPU, 0): ["ml/train/main"]})
    for name in [f"DCGM_FI_DEV_{each}" for each in DEFAULT] + [f"DCGM_FI_PROF_{each}" for each in PROFILED]:
        assert lines(page, name), name
        counts = name.endswith(("CONSUMPTION", "REPLAY_COUNTER", "REMAPPED_ROWS", "BANDWIDTH_TOTAL"))
        assert f"# TYPE {name} {'counter' if counts else 'gauge'}\n" in page


def test_instances_have_their_profile_and_number_and_no_utilization():
    """A MIG instance has its own memory and activity, and the temperature and power of its device."""
    page = shown(NVIDIA, users={(MIG, 0): ["ml/small/main"]})
    used = lines(page, "DCGM_FI_DEV_FB_USED")
    assert ['GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"' in line for line in used] == [False, False, True, False]
    assert 'gpu="2"' in used[2]
    assert 'pod="small"' in used[2]
    assert 'GPU_I_PROFILE="3g.20gb",GPU_I_ID="2"' in used[3]
    assert len(lines(page, "DCGM_FI_DEV_GPU_UTIL")) == 2
    assert len(lines(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")) == 4
    assert len({line.rpartition(" ")[2] for line in lines(page, "DCGM_FI_DEV_GPU_TEMP")[2:]}) == 1


def test_every_pod_of_a_shared_device_has_a_line():
    page = shown(NVIDIA, users={(GPU, 0): ["a/one/main", "a/two/main", "b/one/side"]})
    found = [line for line in lines(page, "DCGM_FI_DEV_GPU_UTIL") if 'gpu="0"' in line]
    assert [re.search(r'namespace="(\w+)",pod="(\w+)"', line).groups() for line in found] == [
        ("a", "one"),
        ("a", "two"),
        ("b", "one"),
    ]
    assert len({line.rpartition(" ")[2] for line in found}) == 1


def test_heat_and_errors_show():
    faults = {
        (GPU, 0): [
            {"overheat": {"to": 105, "within": "10s"}},
            {"hardwareErrors": {"correctedEcc": 60, "pcieReplays": 6, "remappedRows": 1}},
        ]
    }
    page = shown(NVIDIA, users={(GPU, 0): ["a/b/c"]}, faults=faults, at=160.0)
    values = {name: lines(page, f"DCGM_FI_DEV_{name}")[0].rpartition(" ")[2] for name in DEFAULT}
    assert (values["GPU_TEMP"], values["SM_CLOCK"]) == ("105", "705")
    assert (values["PCIE_REPLAY_COUNTER"], values["UNCORRECTABLE_REMAPPED_ROWS"]) == ("6", "1")
    assert lines(page, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL")[0].endswith(" 60")
    assert int(lines(page, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")[0].rpartition(" ")[2]) & 0x68 == 0x68


def test_amds_labels_are_sorted_and_complete():
    """Unknown labels are empty; partitions have their type and number."""
    page = shown(AMD, users={("amd.com/spx_nps1", 0): ["ml/train/main"]})
    first, second = lines(page, "gpu_gfx_activity")
    names = re.findall(r'(\w+)="', first)
    assert names == sorted(names)
    assert len(names) == 21
    assert 'pod="train"' in first
    assert 'gpu_compute_partition_type="spx",gpu_id="0",gpu_memory_partition_type="nps1",gpu_partition_id="0"' in first
    assert 'gpu_compute_partition_type="cpx",gpu_id="1",gpu_memory_partition_type="nps4",gpu_partition_id="0"' in second
    assert len(lines(page, "gpu_total_vram")) == 9
    assert [line.rpartition(" ")[2] for line in lines(page, "gpu_package_power")][2:] == ["0"] * 7
    assert lines(page, "gpu_nodes_total") == ['gpu_nodes_total{hostname="node-1"} 2']


def test_others_have_plain_names():
    page = shown(OTHER, users={("acme.dev/npu", 0): ["a/b/c"]})
    values = read(page)
    names = {name for name, *_ in values}
    assert all(name.startswith("vdev_device_") for name in names)
    assert "DCGM" not in page
    memory = [value for (name, *_), value in values.items() if name == "vdev_device_memory_bytes"]
    assert memory == [16 * 2**30] * 2


@pytest.mark.parametrize("config", [NVIDIA, AMD, OTHER])
def test_prometheus_reads_all_of_it(config):
    text = shown(config)
    values = sorted(float(line.rpartition(" ")[2]) for line in text.splitlines() if not line.startswith("#"))
    assert values == sorted(read(text).values())


def two_scrapes(config, users):
    """The series of two scrapes a minute apart."""
    first, after = (read(shown(config, users=users, at=at)) for at in (1000.0, 1060.0))
    series = {}
    for key, value in first.items():
        name, *labels = key
        written = ",".join(f'{label}="{escaped(text)}"' for label, text in [*labels, ("instance", "i")])
        series[f"{name}{{{written}}}"] = f"{value} {after[key]}"
    return series


@promtool
@pytest.mark.parametrize(
    ("config", "partitions", "used", "expressions"),
    [
        (NVIDIA, '  partitions: {"2": [1g.5gb, 3g.20gb]}\n', [(GPU, 0), (GPU, 1)], DASHBOARD | RULES),
        (AMD, '  partitions: {"1": cpx_nps4}\n', [("amd.com/spx_nps1", 0)], OF_AMD),
    ],
    ids=["dashboard 12239 and rules", "AMD's dashboard for a node"],
)
def test_expressions_have_their_number_of_series(tmp_path, config, partitions, used, expressions):
    users = {place: [f"ml/train-{number}/main"] for number, place in enumerate(used)}
    counts = [f"(count({each}) or vector(0)) == bool {number}" for each, number in expressions.items()]
    evaluate(tmp_path, two_scrapes(config.replace(partitions, ""), users), counts, at="1m")
