"""What Ridgeline measures: one file (or folder) per kernel family, and the contract they are written against."""
