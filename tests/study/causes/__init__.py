"""The study of causes: fifty regressions planted in our own kernels, and what `ci.why` says of each.

The search runs for real (what differs, what is put back, in which order, what follows), and so does the compiler; the
times of a tree are drawn from recorded trials, slower where the planted edit is in it.
"""
