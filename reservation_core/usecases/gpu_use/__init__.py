"""The use of GPUs: stored, rolled up and read."""
