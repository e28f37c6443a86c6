"""First contact with a node: does what Ridgeline relies on work here, and what is the next step where it does not.

`python -m benchmarks.bringup` is the coordinator: it starts every step in processes of its own, with a deadline.
The steps are functions of `probes`, which run in measuring processes (benchmarks.worker).
"""
