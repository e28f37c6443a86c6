"""One module for each declared study."""
