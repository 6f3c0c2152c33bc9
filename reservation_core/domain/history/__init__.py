"""The chain of the audit log, and what is removed when it is old."""
