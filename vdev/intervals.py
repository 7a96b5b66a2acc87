"""All intervals and timeouts of vdev in one table, so that tests can shorten them.

It is passed to everything that waits, together with the clock (`aio.clock`). Not here are deadlines that the kubelet's
protocol requires (registering, a container's start), limits of one HTTP connection, and values of the configuration
or of options.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """All in seconds; the defaults are those of production."""

    # Polling, of things that send no events, or whose events can be lost.
    look_at_driver: float = 5.0  # a DRA driver, at its sockets and files
    look_at_devices: float = 30.0  # and at everything else that inotify or the poll of directories may have missed
    look_at_files: float = 2.0  # in each watched directory
    look_at_holders: float = 30.0
    look_at_holders_for_actions: float = 2.0  # if entries have onAllocate or onRelease
    look_at_command_socket: float = 30.0
    look_at_label: float = 30.0  # of the node, without the permission to watch it
    watch_again: float = 600.0  # after which the watch is tried again
    look_at_lock: float = 0.02  # while another agent serves the kubelet: the node has no devices until this one does
    look_at_claims_lock: float = 0.02  # while another instance of a DRA driver works on claims
    look_for_directory: float = 0.5  # of the kubelet, while it does not exist

    write_tools: float = 2.0  # between updates of the data of the makers' tools in containers

    repeat_health: float = 10.0  # to a kubelet, of a DRA driver's devices; they read Unknown after three times as much

    # Before another attempt.
    retry_host_files: float = 5.0  # creating files on the host that containers need, and removing others
    retry_label: float = 1.0  # at the start, if the API server does not answer
    api_pause_first: float = 1.0  # a request that the API server did not answer; doubles with each failure
    api_pause_most: float = 60.0
    repair_node: float = 30.0  # writing a value again that another client changed, after a burst of repairs
    republish: float = 0.1  # creating ResourceSlices again that another client deletes, which may delete more
    unregistered: float = 20.0  # a resource, before an Event says so: longer than a kubelet's restart
    write_node: float = 0.5  # writing on the Node once more, after a burst of changes
    write_event: float = 2.0  # another Event, after a burst of them
    write_event_of_fleet: float = 0.05  # another Event of any node, after a burst of them
    retry_first: float = 0.2  # registering; doubles with each failure
    retry_most: float = 10.0
    retry_step_first: float = 0.5  # a failed step of the agent; doubles with each failure
    retry_step_most: float = 30.0
    retry_ready: float = 1.0  # between checks whether the start is complete, for the service manager

    # Time for the kubelet.
    kubelet_grace: float = 10.0  # to know its pods after its start: until then PodResources may leave some out
    admission: float = 0.5  # to admit a pod after its Allocate, before PodResources can name it
    name_holder: float = 1.0  # before PodResources is asked again for a pod that it did not name; doubles each time
    unnamed_allocate: float = 5.0  # after which an Allocate whose pod is not named was for a refused pod
    pod_resources_answer: float = 5.0  # to answer PodResources
    first_reading: float = 1.0  # to answer PodResources before the first list
    first_stream: float = 15.0  # to open a stream after it took a registration
    look_for_stream: float = 0.1  # while a resource that is removed has no stream for its empty list
    end_of_stream: float = 0.2  # to notice that a stream ended, before another registration
    empty_list: float = 1.0  # to read the empty list of a resource that is removed
    steady: float = 10.0  # for which a stream must be open before the next pause is the shortest again

    # Time for the agent that serves, before a standby agent takes over.
    directory_remade: float = 10.0  # to lock the kubelet's directory again after it was made again

    # For a device that disappeared.
    retire_settle: float = 5.0  # listed as Unhealthy, before it may go: longer than any admission in progress
    retire_recheck: float = 1.0  # between readings while a pod still holds it; grows with time
    retire_recheck_most: float = 30.0
    retire_blind: float = 600.0  # if nothing can say which pod holds it
    retire_handover: float = 1.0  # between its removal from one resource and its first listing in another

    # For a layout that a label of the node selects.
    repartition_pending: float = 3.0  # for `pending` to appear on the Node, before devices are partitioned anyway
    repartition_holder: float = 20.0  # for the kubelet to name the pod that may hold a device, before the value fails
    repartition_recheck: float = 0.5  # between questions to PodResources about them

    # For a fleet.
    tell_progress: float = 5.0  # between lines about the progress

    # Time for others.
    state_file: float = 1.0  # to read or write the state file, while a list or a pod waits for it
    api_answer: float = 10.0  # for one answer of the API server
    api_watch: float = 240.0  # for the API server to end a watch: between this and one and a half times as much
    api_patience: float = 30.0  # the longest wait that the API server can ask for
    command: float = 10.0  # for a client of the control socket, in total
    server: float = 5.0  # for gRPC to start or to stop a server
    last_requests: float = 2.0  # for requests in flight when a server stops
    burst: float = 0.005  # for the rest of a burst of file events after the first
    serial_line: float = 0.01  # for a program at a virtual serial line, after each piece

    # For the service manager.
    boot: float = 30.0  # for devices that are missing since the last run, before the kubelet may start without them
    signs_of_life: float = 30.0  # between reports, if no watchdog asks for more
    start_margin: float = 15.0  # beyond the time that the start may take
    stalled: float = 120.0  # without a finished reconciliation: one is due every 30 s, and none should take a minute


PRODUCTION = Intervals()
