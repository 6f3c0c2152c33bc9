"""Disks: their records, and where they are kept."""
