"""Machine code of two commits compared and judged by rules, and its history."""
