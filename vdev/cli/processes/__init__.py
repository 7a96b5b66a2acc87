"""Commands that serve until they are ended: the plugin, the embedded kubelet, both in a story."""
