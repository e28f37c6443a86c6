"""Points against an anchor: what few rounds say of a ratio, and which points need more of them."""
