"""Which commit, knob or environment changed a speed: a search over paired trials (`ridgeline bisect`)."""
