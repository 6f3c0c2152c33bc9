"""Submitted forms."""
