"""The machine of a world: its time and processes (`virtual_time`), and what else code takes from one (`stand_ins`)."""
