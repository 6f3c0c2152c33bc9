"""Disks of users: made, used by jobs, kept after their deletion, removed."""
