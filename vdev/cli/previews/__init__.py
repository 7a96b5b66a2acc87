"""Commands that show what a node would advertise and answer, without a kubelet."""
