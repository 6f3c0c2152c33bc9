"""The error of unusable settings."""


class SettingsError(Exception):
    """A process can't start with these settings; the text says which to change."""
