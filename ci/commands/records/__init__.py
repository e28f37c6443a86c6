"""Records in and out: of other tools, and for other tools."""
