"""How long the embedded kubelet waits."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timings:
    """How long the kubelet waits, in seconds. All but `slow`, `bound` and `retry` are the real kubelet's; `dial`,
    `pre_start`, `get_info`, `notify` and `prepare` (Unprepare too) end a call, `slow` reports one that takes longer,
    `bound` ends one for which the real kubelet would wait for ever.

    `retry` passes before a container is tried again that could not be started, and a pod whose claims could not be
    prepared or unprepared. The real kubelet waits so long (or half as long again) for a container and after a failed
    Unprepare; after a failed Prepare it waits until it looks at all pods anyway, a minute to a minute and a half.

    `boot`, `lead` and `sources` are a start where there was one before, as measured on 1.36.2: PodResources answers
    `boot` after it (about), plugins can register `lead` later, and `sources` after that the kubelet hears of its pods;
    until then it names none and admits none.
    """

    dial: float = 10.0
    pre_start: float = 30.0
    tick: float = 10.0
    boot: float = 1.0
    lead: float = 0.06
    sources: float = 0.9
    slow: float = 1.0
    bound: float = 120.0
    get_info: float = 1.0
    notify: float = 5.0
    prepare: float = 45.0
    retry: float = 10.0
