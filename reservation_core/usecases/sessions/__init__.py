"""Entering running jobs."""
