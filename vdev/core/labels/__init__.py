"""The labels of a node: what the devices' makers let their own labellers write, and what the entries say.

hardware      the devices of the node, as a labeller sees them: whole ones, and what they are cut into
nvidia amd intel gke    one maker's labels each: functions of the hardware
entry_labels  the templates of entries
node_labels   all of them together: conflicts, and values that Kubernetes refuses
"""
