"""Connections, addresses, certificates, and limits for strangers."""
