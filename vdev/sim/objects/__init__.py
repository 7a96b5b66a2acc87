"""Pods, and what their containers get, as frozen values. Everything else in `sim` may use these; they use nothing."""
