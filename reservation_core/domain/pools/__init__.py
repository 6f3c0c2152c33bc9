"""The free time of nodes and GPUs that plans are made on, and what is forecast from it."""
