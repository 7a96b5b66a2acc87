"""From single observations to a verdict: thresholds over probes, and a brake on devices that come and go."""
