"""Records of other regimes than "spaced", each in a folder of its own beside results/: two regimes are never compared."""
