"""What pods hold, and what follows from it: held ids stay listed, and nothing that overlaps them is handed out.

`holders` says who may hold what, `retain` what is listed therefore, `orphans` what an unknown id stands for,
`handovers` who got a device and who gave it back.
"""
