"""What changes on the host: directories by inotify or a poll, sysfs by kernel uevents."""
