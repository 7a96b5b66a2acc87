"""The text of the files to one tree of values, each with its position."""
