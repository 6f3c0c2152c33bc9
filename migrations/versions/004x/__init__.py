"""Predictions, secrets, the use of GPUs, dependencies, retries, shares and arrays."""
