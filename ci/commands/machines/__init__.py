"""Verbs about the machines that measure."""
