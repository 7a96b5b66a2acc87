"""An API server on loopback for the embedded kubelet and everything that speaks with it. Start with `server`."""
