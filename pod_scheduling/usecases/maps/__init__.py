"""Review pods, and bind those with maps."""
