"""The kubelet's device manager: it takes registrations, follows device lists, and gets devices for containers.

`device_table` holds what it knows and is pure; `registration_server` and `plugin_client` are its two sides of the
wire, and `watched_plugins` is for plugins that the kubelet finds by itself; `device_allocation` chooses devices and
calls Allocate. It knows pods by UID and starts none.
"""
