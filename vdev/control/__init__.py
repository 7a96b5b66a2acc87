"""The agent's command socket: `vdev status`, `vdev fault` and `vdev device` talk to a running agent through it."""
