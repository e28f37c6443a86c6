"""Why cases are slower, as it was shown: what an explanation says, and where results/ keeps it."""
