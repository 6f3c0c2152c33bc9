"""Assemble processes for pods that users create; the one layer that knows the ledger."""
