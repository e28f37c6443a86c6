"""A benchmark script of any repository under paired A/B: what is asked of the measuring program, and what came of it."""
