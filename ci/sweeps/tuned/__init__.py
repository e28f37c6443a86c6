"""Tuned tables: the knobs that a sweep found better than the rule, beyond doubt, and what confirmed them."""
