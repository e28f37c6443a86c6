"""What the records of sustained calls hold beside times, and how they stand beside the spaced ones."""
