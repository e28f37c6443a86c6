"""Trial files into asv's records, and the long frame of all records."""
