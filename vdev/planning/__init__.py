"""Plans what a node advertises: pure functions from the observed state to the desired state.

    plan        the complete plan: `desired_state(observed) -> DesiredState`
    inventory   the devices of all entries: owners, partitions, names, replicas
    in_use      which devices pods may hold; `retired` keeps these in the lists
    allocation  the edits for a container; `preferred` chooses its devices; `cdi` makes the CDI documents

No state is kept between calls.
"""
