"""Outputs are compared in a process that has never imported the kernel: how they get there, and what it does."""
