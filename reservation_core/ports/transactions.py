"""Why a transaction failed."""


class DatabaseUnavailableError(Exception):
    """The database can't do this now; the transaction is not known to have happened, and a later try may succeed.

    It could not be reached or went away, unless the error is of a subclass.
    """


class StatementRefusedError(DatabaseUnavailableError):
    """The database refused: it is read-only or full, or a statement was cancelled or timed out, say."""


class TransactionLostError(DatabaseUnavailableError):
    """The database aborted this transaction in favour of others; nothing of it happened, so try again."""
