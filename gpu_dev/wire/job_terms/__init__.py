"""What jobs ask for beside GPUs."""
