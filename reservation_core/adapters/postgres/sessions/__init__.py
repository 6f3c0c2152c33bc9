"""Connections to running jobs."""
