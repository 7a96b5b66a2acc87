"""The running plugin of one node: creates and connects the parts in the other packages."""
