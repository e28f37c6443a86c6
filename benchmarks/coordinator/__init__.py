"""The parent of every measurement, without torch: checkouts, processes, rounds, one line for each trial."""
