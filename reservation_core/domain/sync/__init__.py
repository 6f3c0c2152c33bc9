"""Folders that people send before a job starts, and that come back after its end."""
