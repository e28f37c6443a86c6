"""From the frame of records to steps that belong together."""
