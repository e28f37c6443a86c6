"""Comparison tables, rows = cases and columns = backends: their maths, and what others have published."""
