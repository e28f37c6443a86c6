"""Is a machine, or one GPU of eight, as it was and as its peers are?  Read from the notes beside the records.

`readings` makes a few numbers of each trial, `cache` keeps them, `series` sets each beside what it should equal,
`apart` finds where they parted; `ci.history.events` tells it as one event of the machine.
"""
