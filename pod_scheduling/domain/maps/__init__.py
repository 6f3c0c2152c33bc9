"""Scheduling maps: read, put into pods, and placed."""
