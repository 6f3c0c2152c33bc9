"""Samples of the use of GPUs, by GPU and time."""
