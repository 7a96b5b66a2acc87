"""The running plugin of one node: the composition root of everything below it."""
