"""All intervals and timeouts of vdev in one table, so that tests can shorten them.

It is passed to all code that waits, together with the clock (`aio.clock`). It does not contain deadlines of the
kubelet's protocol (registration, a container's start), limits of one HTTP connection, and values of the configuration
or of options.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals and timeouts in seconds. The defaults are for production."""

    # Poll intervals, for sources without events or with events that can be lost.
    look_at_driver: float = 5.0  # sockets and files of a DRA driver
    look_at_devices: float = 30.0  # devices, and other changes that inotify and `look_at_files` may have missed
    look_at_files: float = 2.0  # each watched directory
    look_at_holders: float = 30.0
    look_at_holders_for_actions: float = 2.0  # if entries have onAllocate or onRelease
    look_at_lock: float = 0.02  # while another agent has the lock; the node has no devices during the handover
    look_at_claims_lock: float = 0.02  # while another instance of the DRA driver works on claims
    look_for_directory: float = 0.5  # while the kubelet's directory does not exist

    write_tools: float = 2.0  # between updates of the data for the vendors' tools in containers

    repeat_health: float = (
        10.0  # of a DRA driver's devices; the kubelet reports Unknown after three times this interval
    )

    # Pauses before another attempt, and rate limits.
    retry_host_files: float = 5.0  # to create files on the host that containers need, and to remove others
    know_label: float = 30.0  # for the first answer about the Node's labels, which choose a file
    know_label_again: float = 1.0  # the same, if an earlier process chose a file
    api_pause_first: float = 1.0  # for a request that the API server did not answer; doubles with each failure
    api_pause_most: float = 60.0
    repair_node: float = 30.0  # to restore a value that another client changed, after a burst of repairs
    republish: float = 0.1  # to create ResourceSlices again that another client deleted, which may delete more
    unregistered: float = 20.0  # until an Event reports an unregistered resource; longer than a kubelet's restart
    write_node: float = 0.5  # between writes to the Node, after a burst
    write_event: float = 2.0  # between Events, after a burst
    write_event_of_fleet: float = 0.05  # between Events of all nodes of a fleet, after a burst
    retry_first: float = 0.2  # to register; doubles with each failure
    retry_most: float = 10.0
    retry_step_first: float = 0.5  # to repeat a failed step of the agent; doubles with each failure
    retry_step_most: float = 30.0
    retry_ready: float = 1.0  # between checks for the end of the start, for the service manager

    # Time that the kubelet gets.
    kubelet_grace: float = 10.0  # to load its pods after its start; until then PodResources may omit some
    admission: float = 0.5  # to admit a pod after Allocate, before PodResources can list it
    name_holder: float = 1.0  # before the next PodResources call for a pod that is not listed yet; doubles each time
    unnamed_allocate: float = 5.0  # to list the pod of an Allocate call; after that, the pod counts as rejected
    pod_resources_answer: float = 5.0  # to answer PodResources
    first_reading: float = 1.0  # to answer PodResources before the first list
    first_stream: float = 15.0  # to open a stream after it accepted a registration
    look_for_stream: float = 0.1  # between checks for the stream that a removed resource needs for its empty list
    end_of_stream: float = 0.2  # to notice that a stream ended, before another registration
    empty_list: float = 1.0  # to read the empty list of a removed resource
    steady: float = 10.0  # for which a stream must be open before the back-off is reset

    # Time that the serving agent gets before a standby agent takes over.
    directory_remade: float = 10.0  # to lock the kubelet's directory again after it was created again

    # For a device that disappeared.
    retire_settle: float = 5.0  # for which it is listed as Unhealthy before its removal; longer than an admission
    retire_recheck: float = 0.5  # between PodResources calls while a pod still holds it; grows with time
    retire_recheck_most: float = 30.0
    retire_blind: float = 600.0  # until its removal if no API can report which pod holds it
    retire_handover: float = 1.0  # between its removal from one resource and its first listing in another

    # For a layout that a label of the Node selects.
    repartition_pending: float = 3.0  # for `pending` to appear on the Node, before devices are partitioned anyway
    repartition_holder: float = 20.0  # for PodResources to list the pod that may hold a device, before the value fails
    repartition_recheck: float = 0.5  # between PodResources calls for these pods

    # For a fleet.
    tell_progress: float = 5.0  # between log lines about the progress

    # Timeouts of other operations.
    state_file: float = 1.0  # to read or write the state file, while a list or a pod waits for it
    api_answer: float = 10.0  # for one response of the API server
    api_watch: float = 240.0  # of a watch, which the API server ends after 1 to 1.5 times this time
    command: float = 10.0  # for one client of the control socket, in total
    server: float = 5.0  # for gRPC to start or to stop a server
    last_requests: float = 2.0  # for requests in flight when a server stops
    burst: float = 0.005  # to collect a burst of file events after the first one
    serial_line: float = 0.01  # for a program to read from a virtual serial line, after each chunk

    # For the service manager.
    boot: float = 30.0  # for devices of the last run to appear, before the kubelet may start without them
    signs_of_life: float = 30.0  # between reports, unless a watchdog needs a shorter interval
    start_margin: float = 15.0  # added to the time that the start may take
    stalled: float = 120.0  # without a completed reconciliation; one is due every 30 s and takes less than a minute


PRODUCTION = Intervals()
