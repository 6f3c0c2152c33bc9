"""Disks of users, as the leader keeps them."""
