"""What use cases return, as the wire shows it."""
