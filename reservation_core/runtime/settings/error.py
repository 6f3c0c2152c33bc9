"""What a process says when it can't start as it was told to."""


class SettingsError(Exception):
    """A process can't start with these settings; the text says which to change."""
