"""Nodes without a kubelet: which there are, and what their objects say."""
