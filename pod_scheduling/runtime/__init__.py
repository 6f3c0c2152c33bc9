"""What processes about pods that others make are put together from; the one layer that knows the ledger."""
