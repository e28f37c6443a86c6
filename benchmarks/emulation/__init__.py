"""Code objects for MI300X and MI355X, executed on a CPU: what they compute and execute, never how fast."""
