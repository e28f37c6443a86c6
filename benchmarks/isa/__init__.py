"""What the compiler emits for each kernel, without a GPU: ahead-of-time compilation, exact metrics, explanations.

Nothing here needs torch or a device.  `python -m benchmarks.isa --help` is the command; `ridgeline isa` starts it.
"""
