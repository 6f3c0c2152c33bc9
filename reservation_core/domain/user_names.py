"""User names: a short name or an e-mail address, in lower case."""

USER_NAME = r"[a-z0-9](?:[a-z0-9._@+-]{0,252}[a-z0-9])?"
"""As in the database's users_name_check. An e-mail address has at most 254 characters (RFC 5321, erratum 1690)."""
LONGEST_USER_NAME = 254


def folded(name: str) -> str:
    """A name in the stored form: ASCII capitals make no other user."""
    return name.lower() if name.isascii() else name
