"""How much more work head does than base: the one line in which the two trees of `ridgeline ci canary` differ."""

SHARE = 0.0
