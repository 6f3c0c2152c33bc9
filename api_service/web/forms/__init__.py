"""What forms send."""
