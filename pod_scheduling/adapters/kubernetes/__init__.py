"""Views of the cluster: nodes, pods, maps and marks."""
