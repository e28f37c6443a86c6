"""The study of `ridgeline bisect`: how often it is right and how many trials it takes, beside pass/fail bisection."""
