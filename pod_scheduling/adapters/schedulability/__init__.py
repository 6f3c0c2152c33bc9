"""Asks over HTTP who may use GPUs now."""
