"""GPU types, sets of GPUs on a node, links between GPUs, and the names of placement policies."""
