"""The schema: which keys there are, what a single value may be, and what each means. One module per section."""
