"""The free time of nodes and GPUs, and forecasts from it."""
