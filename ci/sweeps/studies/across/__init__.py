"""What a row says against other rows of the same study: ratios, shares, pairs, groups."""
