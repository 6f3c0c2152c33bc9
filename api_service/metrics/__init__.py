"""What `/metrics` says."""
