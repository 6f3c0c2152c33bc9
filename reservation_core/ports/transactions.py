"""Why a transaction was not carried out."""


class DatabaseUnavailableError(Exception):
    """The database can't do this now; nothing of the transaction is known to have happened, and a later try may do.

    It could not be reached or went away, unless the error is of one of the classes below.
    """


class StatementRefusedError(DatabaseUnavailableError):
    """The database was reached and refused: it is read-only or full, a statement was cancelled or timed out, say."""


class TransactionLostError(DatabaseUnavailableError):
    """The database ended this transaction so that others can go on; nothing of it happened, the next try will do."""
