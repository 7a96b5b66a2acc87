"""What a node shall advertise: pure functions from what is observed to what is desired.

    plan        the whole decision, in the order of its steps: `decide(world) -> DesiredState`
    inventory   the devices of all entries: owners, partitions, names, replicas
    in_use      which devices a pod may hold; `retention` keeps these in the lists
    allocation  what a container gets; `preferred` chooses which devices; `cdi` has the documents

Nothing is remembered between two calls.
"""
