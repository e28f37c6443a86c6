"""Verbs that draw."""
