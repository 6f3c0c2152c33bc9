"""Connections, addresses, certificates, and limits for unauthenticated clients."""
