"""Slurm through the few commands and text formats that are the same in 22.05, 24.11 and 26.05."""
