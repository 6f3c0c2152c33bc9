"""Records, errors and protocols between use cases and the world."""
