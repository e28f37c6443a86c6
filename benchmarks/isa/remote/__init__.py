"""Stores to other ranks in AMD code: which they are, and how often a wave waits for them halfway."""
