"""Bring the cluster to what the ledger says, and the ledger to what the cluster shows."""
