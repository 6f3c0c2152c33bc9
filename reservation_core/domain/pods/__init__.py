"""Pods: the environment of our jobs, and other pods as the ledger and the cluster see them."""
