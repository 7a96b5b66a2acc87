"""The section `faults`, and the effects that concern one door alone."""
