"""Telling people of events: off unless a file configures it, each event once, never what is not sure."""
