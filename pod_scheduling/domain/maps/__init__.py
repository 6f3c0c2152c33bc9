"""Scheduling maps: parsing, injection into pods, placement."""
