"""What the makers' command-line tools show in containers: what is in the files that they read.

    shown       all that a tool is told of a device
    nvidia      that, as nvidia-smi's file
    amd         that, as the file of amd-smi

A file holds shell assignments, one a line: the tools are shell scripts, and source it. Each device has a directory of
its own on the node, and a container gets those of its devices: so it sees exactly these, however many containers share
one, and nothing has to be known of containers.
"""
