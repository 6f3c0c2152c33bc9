"""The audit log and its chain."""
