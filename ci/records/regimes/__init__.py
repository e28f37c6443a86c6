"""Records of other regimes than "spaced", in folders of their own: times of two regimes are never compared."""
