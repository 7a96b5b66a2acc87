"""The groups of rows that `python -m bench` measures: each a function that adds its rows to the run."""
