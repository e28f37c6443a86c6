"""Which operators a change of source files can reach.  Standard library only: whoever judges asks too."""
