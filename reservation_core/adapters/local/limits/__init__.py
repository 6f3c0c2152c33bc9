"""Keeping pods on this machine to what their jobs asked for."""
