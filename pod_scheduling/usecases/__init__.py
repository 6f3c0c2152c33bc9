"""What is done about pods that others make."""
