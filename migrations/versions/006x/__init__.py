"""Snapshots and clones of disks."""
