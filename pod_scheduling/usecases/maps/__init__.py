"""Review pods, and bind pods with maps."""
