"""Declared experiments (benchmarks/studies): from their points to a record, a table and figures."""
