"""Device code and helpers that several operators use.  Declares no kernel."""
