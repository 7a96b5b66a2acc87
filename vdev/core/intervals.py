"""How long the agent waits for what: one table, so that a test can shorten a pause without reaching inside.

A frozen value, made once and handed to whoever waits. Limits of one call (a request's time-out, a deadline that the
kubelet sets) stand where the call is made: to shorten them would change what is tested.
"""

from dataclasses import dataclass

from .retention import holders, retain


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """All in seconds; the defaults are those of production."""

    # Between looks at what sends no events, or whose events can be lost.
    look_at_kubelet: float = 5.0
    look_at_devices: float = 30.0
    look_at_holders: float = 30.0
    look_at_holders_for_actions: float = 2.0  # where something is done when a device changes hands
    look_at_label: float = 30.0
    look_at_lock: float = 0.5  # while another agent serves the kubelet

    # Before another attempt.
    retry_virtual_node: float = 5.0  # what could not be made in the device directory
    retry_cdi: float = 5.0  # a CDI file that could not be written
    retry_cdi_most: float = 30.0  # one that something else keeps deleting or changing
    retry_label: float = 1.0  # at the start, where the API server does not answer
    retry_rate_limited: float = 0.2  # the kubelet refills 100 calls of PodResources a second
    retry_first: float = 0.2  # registering; doubles with each failure
    retry_most: float = 10.0
    retry_step_first: float = 0.5  # what the agent failed to do; doubles with each failure
    retry_step_most: float = 30.0

    # What a kubelet is given time for.
    kubelet_grace: float = holders.GRACE  # to know its pods after its start
    admission: float = 0.5  # to name a pod as a holder: it has admitted the pod some time after Allocate
    unnamed_allocate: float = holders.ADMISSION  # after which an Allocate without a pod was for one that was refused
    first_reading: float = 1.0  # to say who holds what, before the first list
    first_stream: float = 15.0  # to open a stream after it took a registration
    end_of_stream: float = 0.2  # to notice that a stream ended, before it is registered with again
    empty_list: float = 1.0  # to take in the empty list of a resource that goes
    steady: float = 10.0  # that a stream must live for the next pause to be the shortest again

    # Of a device that vanished.
    retire_settle: float = retain.SETTLE  # listed as Unhealthy, before it may go
    retire_recheck: float = retain.RECHECK  # between readings while a pod still holds it; grows with time
    retire_blind: float = holders.BLIND  # where nobody can say who holds it


PRODUCTION = Intervals()
