"""Configurations with the numbers of devices for which the budgets are defined."""

DOMAIN = "bench.dev"


def resource(number: int) -> str:
    """Return the name of a resource by its number."""
    return f"{DOMAIN}/r{number}"


def virtual(number: int, count: int, *more: str) -> str:
    """Return an entry of virtual devices, each with memory, a NUMA node, a variable and a device node."""
    return (
        f"  - name: d{number}\n"
        f"    resource: {resource(number)}\n"
        f"    virtual: {{count: {count}, memory: 16Gi, numa: 0}}\n"
        "    container:\n"
        '      env: {BENCH_MEMORY: "{memory.mib}"}\n'
        '      deviceNodes: [{hostPath: /dev/null, containerPath: "/dev/bench{index}"}]\n'
        + "".join(f"    {line}\n" for line in more)
    )


def devices(*entries: str, more: str = "") -> str:
    """Return a configuration with these entries."""
    return "version: v1\n" + more + "devices:\n" + "".join(entries)


def plain(resources: int, count: int) -> str:
    """A number of resources with `count` devices each."""
    return devices(*(virtual(number, count) for number in range(resources)))


def with_everything() -> str:
    """8 resources of 8 devices for the device plugin and for DRA, with labels on the Node."""
    entries = [virtual(each, 8, "advertise: [device-plugin, dra]", "labels: {bench.dev/on: yes}") for each in range(8)]
    return devices(*entries, more="node: {labels: true}\n")


def turned(count: int) -> tuple[str, str]:
    """Two configurations of one resource, with all devices on one NUMA node, and all on another."""
    text = plain(1, count)
    return text, text.replace("numa: 0", "numa: 1")


def globbed(pattern: str) -> str:
    """One resource for the device nodes that match the pattern."""
    return devices(f"  - name: port\n    resource: {resource(0)}\n    glob: {pattern}\n")


def linked(count: int, group: int) -> str:
    """One resource of devices with fast links within groups of `group`, on alternating NUMA nodes."""
    links = [list(range(first, first + group)) for first in range(0, count, group)]
    numa = [number // group % 2 for number in range(count)]
    return devices(
        f"  - name: d0\n    resource: {resource(0)}\n    virtual: {{count: {count}, numa: {numa}, links: {links}}}\n"
    )


def replicated(count: int, replicas: int) -> str:
    """One resource of `count` devices with `replicas` replicas each."""
    rule = f"{{name: {resource(0)}, replicas: {replicas}}}"
    return devices(virtual(0, count)) + f"sharing: {{timeSlicing: {{resources: [{rule}]}}}}\n"


def for_claims() -> str:
    """One resource of 8 devices for DRA."""
    return devices(virtual(0, 8, "advertise: [dra]"))


def fleet(nodes: int) -> str:
    """A fleet of nodes without kubelets, with 8 GPUs each."""
    return f"""version: v1
devices:
  - name: h100
    resource: nvidia.com/gpu
    virtual: {{preset: h100-sxm5-80gb, count: 8}}
    advertise: [device-plugin, dra]
node: {{labels: true}}
fleet: {{nodes: [{{name: "gpu-{{0..{nodes - 1}}}", capacity: {{cpu: 96, memory: 1Ti, pods: 110}}}}]}}
"""
