"""An API server on loopback for the embedded kubelet and its clients. Start with `server`."""
