"""Nodes and their GPUs in the API, and the node agent."""
