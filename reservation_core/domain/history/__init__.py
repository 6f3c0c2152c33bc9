"""The chain of the audit log, and the retention of history."""
