"""Prints, again and again, on which node it runs and which cards it sees."""
