"""The measuring process: requests in, checks of results and samples out, and what guards them from what it times."""
