"""The audit log, its chain, idempotency, and the retention."""
