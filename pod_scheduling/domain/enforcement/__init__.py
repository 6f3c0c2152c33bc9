"""Booking enforcement: whether a pod may have GPUs now."""
