"""Nodes, GPUs and maintenance windows."""
