"""Folders on their way into jobs and back."""
