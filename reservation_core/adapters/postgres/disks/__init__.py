"""Disks in PostgreSQL."""
