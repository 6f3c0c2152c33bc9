"""Data that processes read repeatedly, and the files that they start from."""
