"""Studies: declared experiments, from their points to their table and figures."""
