"""Which devices, partitions and replicas are listed, and under which names."""
