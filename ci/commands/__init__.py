"""The verbs: a module runs one, prints what came out, and returns its exit code."""
