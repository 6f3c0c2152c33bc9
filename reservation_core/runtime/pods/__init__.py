"""Processes about foreign pods: the node agent and webhook certificates."""
