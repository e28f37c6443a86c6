"""Statistics of paired timings: pure functions on arrays, and the values they produce (`ci.stats.types`)."""
