"""Nodes and their GPUs as the API has them, and the node agent."""
