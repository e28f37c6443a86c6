"""A small project with kernels of Triton, as somebody has one: `ridgeline emulate` runs its tests and its scripts."""
