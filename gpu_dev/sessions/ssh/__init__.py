"""OpenSSH with jobs."""
