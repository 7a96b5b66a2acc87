"""What others accept as text: names, labels, quantities, paths with wildcards, templates."""
