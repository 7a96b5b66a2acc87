"""Generated configurations, small to large."""

from collections.abc import Iterable

DOMAIN = "bench.dev"
A100 = "a100-sxm4-40gb"


def resource(number: int) -> str:
    """The name of a generated resource."""
    return f"{DOMAIN}/r{number}"


def resources(count: int) -> list[str]:
    """The names of the first resources."""
    return [resource(number) for number in range(count)]


def devices(*entries: str, flags: str = "", sharing: str = "") -> str:
    """A configuration of these entries."""
    return "version: v1\n" + flags + "devices:\n" + "".join(entries) + sharing


def virtual(number: int, count: int, *, more: Iterable[str] = ()) -> str:
    """An entry of `count` virtual devices with what a real one has: memory, a NUMA node, a variable, a node."""
    return (
        f"  - name: d{number}\n"
        f"    resource: {resource(number)}\n"
        f"    virtual: {{count: {count}, memory: 16Gi, numa: 0}}\n"
        "    container:\n"
        '      env: {BENCH_MEMORY: "{memory.mib}"}\n'
        '      deviceNodes: [{hostPath: /dev/null, containerPath: "/dev/bench{index}"}]\n'
        + "".join(f"    {line}\n" for line in more)
    )


def plain(resources: int, count: int) -> str:
    """So many resources with so many devices each."""
    return devices(*(virtual(number, count) for number in range(resources)))


def of_many(entries: int, count: int) -> str:
    """So many resources with 8 devices each, but the first with `count`."""
    return devices(virtual(0, count), *(virtual(number, 8) for number in range(1, entries)))


def with_one_more(count: int) -> tuple[str, str]:
    """One resource of `count` devices from two entries, the second of which has one device, or two."""
    more = "  - {{name: one, resource: {}, virtual: {{count: {}, memory: 16Gi, numa: 0}}}}\n"
    one, two = (devices(virtual(0, count - 1), more.format(resource(0), number)) for number in (1, 2))
    return one, two


def with_probed(count: int, path: str) -> str:
    """One resource of `count` devices, the last of which is healthy while the file says `ok`."""
    probed = (
        f"  - name: probed\n    resource: {resource(0)}\n    virtual: {{count: 1, numa: 0}}\n"
        f"    health: {{probe: file, path: {path}, content: ok, interval: 200ms}}\n"
    )
    return devices(virtual(0, count - 1), probed) if count > 1 else devices(probed)


def globbed(pattern: str) -> str:
    """One resource of the device nodes that match, and seven others beside it."""
    entry = f"  - name: port\n    resource: {resource(0)}\n    glob: {pattern}\n"
    return devices(entry, *(virtual(number, 8) for number in range(1, 8)))


def linked(count: int, group: int) -> str:
    """One resource of devices with fast links within groups of `group`, on alternating NUMA nodes."""
    links = [list(range(first, first + group)) for first in range(0, count, group)]
    numa = [number // group % 2 for number in range(count)]
    return devices(
        f"  - name: d0\n    resource: {resource(0)}\n    virtual: {{count: {count}, numa: {numa}, links: {links}}}\n"
    )


def replicated(count: int, replicas: int) -> str:
    """One resource of `count` shared devices."""
    rule = f"{{name: {resource(0)}, replicas: {replicas}}}"
    return devices(virtual(0, count), sharing=f"sharing: {{timeSlicing: {{resources: [{rule}]}}}}\n")


def cdi(count: int) -> str:
    """One resource whose containers are given CDI names."""
    return devices(virtual(0, count), flags="flags: {plugin: {deviceListStrategy: [cdi-cri]}}\n")


def turned(count: int) -> tuple[str, str]:
    """One resource of `count` devices, all on one NUMA node, and all on the other."""
    text = plain(1, count)
    return text, text.replace("numa: 0", "numa: 1")


def partitioned(count: int) -> tuple[str, str]:
    """One whole A100, whose resource is the first, and `count` with partitions: by one layout, and by another."""
    entries = (
        f"  - {{name: whole, resource: {resource(0)}, virtual: {{preset: {A100}, count: 1}}}}\n"
        f"  - name: cut\n    resource: {resource(1)}\n    virtual: {{preset: {A100}, count: {count}}}\n"
        f'    partitions: {{"0-{count - 1}": {{}}}}\n'
    )
    text = devices(entries, flags="flags: {migStrategy: mixed}\n")
    return text.replace("{}", "all-1g.5gb"), text.replace("{}", "all-balanced")


def scraped(count: int, address: str) -> str:
    """One resource of A100s whose metrics are served."""
    entry = (
        f"  - {{name: d0, resource: {resource(0)}, virtual: {{preset: {A100}, count: {count}}}, "
        "telemetry: {always: true}}\n"
    )
    return devices(entry, flags=f'telemetry: {{address: "{address}"}}\n')
