"""Nodes and their GPUs, drawn."""
