"""Disks of the local cluster."""
