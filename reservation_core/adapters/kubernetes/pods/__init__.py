"""Pods as the API has them: written, read, marked."""
