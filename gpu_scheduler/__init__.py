"""Binds pods that carry a scheduling map to the nodes that it names."""
