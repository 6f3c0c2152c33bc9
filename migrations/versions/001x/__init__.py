"""Pods of others, topology, signing in, and sessions of browsers."""
