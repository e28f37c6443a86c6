"""Verbs of the history: change points, events, and what people decide about them."""
