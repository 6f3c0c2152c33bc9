"""Connections to running jobs, SSH keys, and shares of jobs."""
