"""What a claim of Dynamic Resource Allocation gets on the node: pure, from the ResourceClaim to the CDI specification.

ResourceClaim ─► claim ─────────┐
its configuration ─► settings ──┼─► prepare ─► PreparedClaim (what is answered, injected and remembered)
devices as published ───────────┘                 └─► conflict: nothing is handed out twice
"""
