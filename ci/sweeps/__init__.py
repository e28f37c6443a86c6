"""Sweeps: which points, in which rungs, measured where they were not yet, and what came of them."""
