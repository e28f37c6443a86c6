"""Points measured against an anchor: sweeps, studies and tuned tables."""
