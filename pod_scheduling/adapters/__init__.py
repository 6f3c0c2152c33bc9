"""The world."""
