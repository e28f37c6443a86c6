"""A user's benchmark script under paired A/B: a process a side, in lock-step, paired by the names of its closures.

survey   both sides run the script once, nothing is timed: which closures there are, what each costs, how it ended
plan     the closures that both sides have, in one order; as many of them as fit the budget
trial    both sides run it in fresh processes and stop at each planned closure until it is timed on both
"""
