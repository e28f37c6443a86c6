"""What lies beside the records and is no record of asv: answers of the gate, checks, curves over CUs."""
