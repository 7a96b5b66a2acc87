"""How long vdev waits for what: one table, so that a test can shorten a pause without reaching inside.

A frozen value, made once and handed to all that wait, as the clock is by which they wait (`aio.clock`). What others set
is not here but where it is used: the deadlines of one call that the kubelet's protocol demands (registering, a
container's start), the limits of one HTTP connection, and what the configuration or an option says.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """All in seconds; the defaults are those of production."""

    # Between looks at what sends no events, or whose events can be lost.
    look_at_kubelet: float = 5.0
    look_at_devices: float = 30.0
    look_at_files: float = 2.0  # in each watched directory
    look_at_holders: float = 30.0
    look_at_holders_for_actions: float = 2.0  # where something is done when a device changes hands
    look_at_command_socket: float = 5.0
    look_at_label: float = 30.0  # of the node, where it may not be watched
    watch_again: float = 600.0  # after which it is tried whether it may be
    look_at_lock: float = 0.02  # while another agent serves the kubelet: the node has no devices until this one does
    look_at_claims_lock: float = 0.02  # while another instance of a DRA driver works on claims
    look_for_directory: float = 0.5  # of the kubelet, while there is none

    write_tools: float = 2.0  # between writings of what the makers' tools show in containers

    repeat_health: float = 10.0  # to a kubelet, of a DRA driver's devices; they read Unknown after three times as much

    # Before another attempt.
    retry_host_files: float = 5.0  # what containers need on the host, and could not be made
    retry_label: float = 1.0  # at the start, where the API server does not answer
    api_pause_first: float = 1.0  # what the API server did not answer; doubles with each failure
    api_pause_most: float = 60.0
    repair_node: float = 1.0  # writing on the Node again what somebody else undid; doubles each time
    repair_node_most: float = 60.0
    wipe: float = 0.05  # somebody who deletes ResourceSlices, to delete the rest of them
    republish: float = 0.2  # making ResourceSlices again that somebody keeps deleting
    unregistered: float = 20.0  # a resource, before an Event says so: longer than a kubelet's restart
    write_node: float = 0.5  # writing on the Node once more, after a burst of changes
    write_event: float = 2.0  # another Event, after a burst of them
    write_event_of_fleet: float = 0.05  # another Event of any node, after a burst of them
    again_event: float = 10.0  # counting the same Event once more
    retry_rate_limited: float = 0.2  # the kubelet refills 100 calls of PodResources a second
    retry_first: float = 0.2  # registering; doubles with each failure
    retry_most: float = 10.0
    retry_step_first: float = 0.5  # what the agent failed to do; doubles with each failure
    retry_step_most: float = 30.0
    retry_ready: float = 1.0  # between looks whether the service manager may be told of the start

    # What a kubelet is given time for.
    kubelet_grace: float = 10.0  # to know its pods after its start: it may leave some out
    admission: float = 0.5  # to name a pod as a holder: it has admitted the pod some time after Allocate
    name_holder: float = 1.0  # to be asked again for one that it did not name; doubles each time
    unnamed_allocate: float = 5.0  # after which an Allocate without a pod was for one that was refused
    pod_resources_answer: float = 5.0  # to say who holds what
    first_reading: float = 1.0  # to say so before the first list
    first_stream: float = 15.0  # to open a stream after it took a registration
    end_of_stream: float = 0.2  # to notice that a stream ended, before it is registered with again
    empty_list: float = 1.0  # to take in the empty list of a resource that goes
    steady: float = 10.0  # that a stream must live for the next pause to be the shortest again

    # What the agent that serves is given time for, by one that stands by.

    # Of a device that vanished.
    retire_settle: float = 5.0  # listed as Unhealthy, before it may go: longer than any admission in progress
    retire_recheck: float = 1.0  # between readings while a pod still holds it; grows with time
    retire_recheck_most: float = 30.0
    retire_blind: float = 600.0  # where nobody can say who holds it
    retire_handover: float = 1.0  # between its drop from one resource and its first listing in another

    # Of a layout that a label of the node chooses.
    repartition_pending: float = 3.0  # for `pending` to be seen on the Node, before devices are cut all the same
    repartition_holder: float = 20.0  # a kubelet, to name the pod that may hold something, before the value fails
    repartition_ask: float = 0.1  # before it is asked who holds what, for a new value
    repartition_recheck: float = 1.0  # between looks while it does not say so

    # Of a fleet.
    tell_progress: float = 5.0  # between lines that tell how far it is

    # What others are given time for.
    state_file: float = 1.0  # a disk, to give what an earlier process left: no list must wait for a dead file server
    sync_state_file: float = 1.0  # bringing what was written to the disk itself
    api_answer: float = 10.0  # the API server, for one answer
    api_watch: float = 240.0  # it, to end a watch: between this and one and a half times as much
    api_patience: float = 30.0  # a request that the API server asks to wait, at most
    api_token: float = 60.0  # a service account's token, before it is read again
    command: float = 10.0  # a client of the control socket, all in all
    server: float = 5.0  # gRPC, to start or to stop a server
    last_requests: float = 2.0  # what is in flight when a server stops
    burst: float = 0.005  # the rest of a burst of file events after its first
    serial_line: float = 0.01  # a program at a virtual serial line, after each piece

    # Of what is told to the service manager.
    boot: float = 30.0  # devices that are missing since the last run, before the kubelet may start without them
    signs_of_life: float = 30.0  # between looks where no watchdog asks for more
    start_margin: float = 15.0  # beyond what the start may take
    stalled: float = 120.0  # without a finished turn: one is due every 30 s, and none should take a minute


PRODUCTION = Intervals()
