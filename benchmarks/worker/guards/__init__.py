"""What keeps a time honest: clocks that no kernel can replace, and checks that timed code cannot tell from timing.

bound        what the harness calls to measure and to compare, held before any operator is imported, and watched
settings     what one arm can set for all: threads, precision, the current stream, a mode that sees every operation
outputs      what an output must be: a plain tensor of its own
live_inputs  a second set of values for inputs that every call reads anew
spot_check   a sample that is not kept: what the call should have done is compared afterwards
spans        the device's events against the host's clock, and whether the caches were flushed

Python cannot keep out a program that means to deceive and shares its process.  What is published of such programs is in
tests/benchmarks/exploits, each with what refuses it.
"""
