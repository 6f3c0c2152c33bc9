"""Errors of the embedded server; every text says what to do next."""


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL can't be used."""


class AlreadyInUseError(EmbeddedPostgresError):
    """Another process uses the same home."""


class GivenUpError(EmbeddedPostgresError):
    """The caller no longer waits for a starting server."""
