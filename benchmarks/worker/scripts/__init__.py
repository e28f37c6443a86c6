"""A user's benchmark script in a measuring process: its timers intercepted, its closures timed by our protocol."""
