"""Benchmark programs of any language: built and run in turn on two checkouts, their output read by a declaration."""
