"""Disks: what jobs of a user keep."""
