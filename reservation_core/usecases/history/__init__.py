"""The audit log, its chain, and what is removed when it is old."""
