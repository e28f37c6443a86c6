"""Verbs that measure points against an anchor, and what is made of them."""
