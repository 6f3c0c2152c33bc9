"""Start, log and stop processes."""
