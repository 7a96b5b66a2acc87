"""What pods hold, and what follows from it: held ids stay listed, and nothing that overlaps them is handed out.

`holders` says who may hold what, `retain` what is listed therefore, `orphans` what an unknown id stands for,
`handovers` who got a device, who gave it back, and what must be done before the next container starts.
"""
