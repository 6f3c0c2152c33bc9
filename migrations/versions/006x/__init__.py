"""Snapshots and clones of disks, slots along chains."""
