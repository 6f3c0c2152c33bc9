"""The audit log, its chain, and the retention."""
