"""Measuring the points of a sweep: batches with an anchor, resumed where a file has them."""
