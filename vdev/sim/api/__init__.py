"""An API server on loopback for the embedded kubelet and whoever speaks with it. Start with `server`."""
