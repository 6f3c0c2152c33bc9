"""Failures of TLS with their cause, which decides what to do: no other failed connection is like them."""

import ssl

from gpu_dev.server.transport import TlsError, TransportError

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "UNEXPECTED_EOF")
_TLS_ALERT = "\x15\x03"
"""How the answer of a server of TLS to a plain request begins."""


def connection_failure(error: BaseException) -> TransportError:
    """The error for a connection that could not be opened; `error` may be one that a library made of the first."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return TlsError(
                f"has a certificate that is not trusted here ({cause.verify_message}). If an authority of your own "
                "signed it, name the file with that authority's certificate in SSL_CERT_FILE"
            )
        if isinstance(cause, ssl.SSLError):
            if (cause.reason or "").startswith(_NO_TLS) or isinstance(cause, ssl.SSLEOFError):
                return TlsError("does not speak TLS. If that is as it should be, write", other_scheme="http")
            return TlsError(f"and this program agree on no way of TLS ({cause.reason or cause})")
        cause = cause.__cause__ or cause.__context__
    return TransportError("no connection")


def answer_failure(error: BaseException) -> TransportError:
    """The error for an answer that can't be read."""
    if str(error).startswith(_TLS_ALERT):
        return TlsError("speaks only TLS. Write", other_scheme="https")
    return TransportError("the connection broke")
