"""Sign in to a server, and again when the token has expired."""

import os
from collections.abc import Callable

from gpu_dev.errors import ApiError
from gpu_dev.server.connection import Connection, login_file, store_login
from gpu_dev.server.exchange import Exchange, read_answer
from gpu_dev.server.ways import Way, WayKind
from gpu_dev.wire.sign_in import SignedIn

_UNAUTHORIZED = 401


def sign_in(exchange: Exchange, way: Way) -> SignedIn:
    """Show a proof and get a token. Raises UsageError and NotLoggedInError without a proof, ApiError for a refusal."""
    try:
        return _sign_in(exchange, way)
    except ApiError as error:
        # A signature is good once: after a lost answer the same one is refused, and a new one is accepted.
        if way.kind is not WayKind.AWS or error.problem.status != _UNAUTHORIZED:
            raise
        return _sign_in(exchange, way)


def _sign_in(exchange: Exchange, way: Way) -> SignedIn:
    from gpu_dev.server.proving import proof_of

    proof = proof_of(way, exchange.server)
    return read_answer(SignedIn, exchange.send("POST", "/v1/login", body=proof, anonymous=True).content)


def renewal_of(connection: Connection) -> Callable[[], str] | None:
    """A function that gets and stores a new token for a connection; None if its way is not known."""
    way = connection.way
    if way is None:
        return None

    def renew() -> str:
        exchange = Exchange(Connection(connection.server))
        try:
            done = sign_in(exchange, way)
        finally:
            exchange.close()
        store_login(login_file(os.environ), connection.server, done.token, way=way, current=False)
        return done.token

    return renew
