"""Data that processes read regularly, and files that they read at the start."""
