"""Ids and secrets."""
