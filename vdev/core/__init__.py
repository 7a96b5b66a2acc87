"""Every decision of vdev, as functions from values to values.

Nothing here does I/O, reads a clock or knows a framework; time, files and messages come in as arguments and go out as
results. The road of the data: `spec` (what the configuration says) and `device.RawDevice` (what discovery found) become
a `resources.Inventory`; two inventories become changes; a request becomes a `request.Allocation`, and that becomes
`device_edits.ContainerEdits`.
"""
