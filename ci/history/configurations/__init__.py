"""Whether the configuration in use is still the best of those that sweeps measured: events of a kind of their own."""
