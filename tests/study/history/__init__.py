"""Studies of the history: what is planted and what is found."""
