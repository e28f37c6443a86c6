"""What Ridgeline measures: one file (or folder) per operator, and the contract they are written against."""
