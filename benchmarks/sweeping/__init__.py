"""Measuring the points of a sweep: batches with an anchor, compiled ahead, resumed where a file has them."""
