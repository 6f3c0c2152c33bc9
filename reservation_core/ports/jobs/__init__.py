"""Jobs, their logs, and pods that the ledger does not know."""
