"""What the use cases need from the world."""
