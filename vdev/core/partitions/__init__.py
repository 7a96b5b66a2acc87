"""What a device can be cut into, and where each part sits on its memory slices.

`geometry` holds the values, `placement` decides, `packing` searches.
"""
