"""The trial file as types, and the comparisons it holds."""
