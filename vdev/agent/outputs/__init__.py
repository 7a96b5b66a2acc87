"""What follows from a plan, each in a file of its own: device lists, CDI files, virtual nodes, the record."""
