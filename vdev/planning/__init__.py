"""What a node should advertise: pure functions from what is observed to what is desired.

    plan        all of it in order: `desired_state(observed) -> DesiredState`
    inventory   the devices of all entries: owners, partitions, names, replicas
    in_use      which devices pods may hold; `retired` keeps these in the lists
    allocation  what a container gets; `preferred` chooses which devices; `cdi` has the documents

Nothing is remembered between two calls.
"""
