"""The audit log, its chain, idempotency, and retention."""
