"""Others' pods: whether they may run, and those that the ledger does not know."""
