"""Kernels that go wrong in every way the compiling harness has to survive and to name."""
