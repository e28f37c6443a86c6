"""Verbs that take a user's own scripts."""
