"""The machine of a world: time and processes (`virtual_time`), TCP (`memory_tcp`), and what else code takes from one
(`stand_ins`).
"""
