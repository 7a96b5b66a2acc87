"""Kernel uevents over netlink: they report changes in sysfs, where inotify reports none.

An event is only a wake-up: its text is never trusted, and who receives one looks at sysfs again.
"""

import contextlib
import socket

_NETLINK_KOBJECT_UEVENT = 15  # linux/netlink.h
_KERNEL_GROUP = 1  # the kernel's own messages; group 2 carries udev's


class Uevents:
    """A socket that becomes readable when the kernel added, removed or changed a device."""

    def __init__(self) -> None:
        """Raises OSError where the platform or the container's rules do not allow it."""
        family = getattr(socket, "AF_NETLINK", None)
        if family is None:
            raise OSError("this platform has no netlink")
        self._socket = socket.socket(
            family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, _NETLINK_KOBJECT_UEVENT
        )
        try:
            self._socket.bind((0, _KERNEL_GROUP))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """The file descriptor to wait on."""
        return self._socket.fileno()

    def drain(self) -> None:
        """Discard all events until now. An overflow of the socket's buffer counts as an event."""
        with contextlib.suppress(OSError):
            while True:
                self._socket.recv(8192)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
