"""Reading requests: bodies, headers, pages, preconditions, idempotency."""
