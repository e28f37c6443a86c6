"""Verbs for projects of other people."""
