"""Small kernels with known code, for the tests of benchmarks.isa."""
