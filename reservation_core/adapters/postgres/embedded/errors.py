"""What can go wrong around the embedded server; every text says what to do next."""


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL can't be used as asked."""


class AlreadyInUseError(EmbeddedPostgresError):
    """Another process works in the same home."""


class GivenUpError(EmbeddedPostgresError):
    """Nobody waits any more for a server that is coming up."""
