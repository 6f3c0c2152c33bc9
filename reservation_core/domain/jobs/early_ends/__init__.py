"""Jobs that end before their command has: by the clock, for others, or as their GPUs are idle."""
