"""The Kubernetes cluster: pods pinned to nodes with exactly their GPUs."""
