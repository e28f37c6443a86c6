"""A benchmark script of any repository under paired A/B: what is asked for, and what came of it."""
