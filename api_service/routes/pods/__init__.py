"""Pods that others create: whether they may run, and pods that the ledger does not know."""
