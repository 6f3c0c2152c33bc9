"""The audit log, its chain, idempotency, and what is removed when it is old."""
