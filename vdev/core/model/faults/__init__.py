"""The values of fault rules: what happens, to which devices and when; and what a fault answers to those who ask."""
