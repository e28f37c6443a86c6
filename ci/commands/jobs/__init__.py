"""Verbs of jobs on a queue or a cluster."""
