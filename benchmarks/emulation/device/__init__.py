"""A process in which torch and Triton have one AMD GPU, emulated on this CPU: programs run in it as they are."""
