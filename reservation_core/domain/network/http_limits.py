"""What an HTTP server accepts from unauthenticated clients, and why it refuses the rest."""

from dataclasses import dataclass
from enum import StrEnum


class Refusal(StrEnum):
    """Why a request or connection was refused; the metric `gpu_dev_http_refused_total` counts by it."""

    MALFORMED = "malformed"
    HEAD_TOO_LARGE = "head_too_large"
    TOO_MANY_FIELDS = "too_many_fields"
    URL_TOO_LONG = "url_too_long"
    UPGRADE_WITH_BODY = "upgrade_with_body"
    HEAD_TOO_SLOW = "head_too_slow"
    BODY_TOO_SLOW = "body_too_slow"
    READER_TOO_SLOW = "reader_too_slow"
    TOO_MANY_PIPELINED = "too_many_pipelined"
    HANDSHAKE = "tls_handshake"
    SERVER_FULL = "server_full"
    ADDRESS_FULL = "address_full"
    DISPLACED = "displaced"
    NO_DESCRIPTORS = "no_descriptors"


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one server. Sizes are in bytes, times in seconds.

    `head_s` counts from the first byte of a request (of a new connection: from its accept) to the head's end; a TLS
    handshake has as long. `body_s` bounds a body's time, `body_bytes_per_s` its rate after `body_grace_s`; time in
    which the application does not read counts for neither. A client that reads nothing of its response for `reader_s`
    is disconnected.
    """

    connections: int
    connections_per_address: int
    head_bytes: int = 16 * 1024
    head_fields: int = 100
    head_s: float = 10
    url_bytes: int = 8 * 1024
    body_s: float = 300
    body_bytes_per_s: float = 1024
    body_grace_s: float = 10
    reader_s: float = 60

    def body_is_late(self, received: int, elapsed_s: float) -> bool:
        """Whether a body with this many bytes after this many seconds takes too long."""
        return elapsed_s >= self.body_s or received < (elapsed_s - self.body_grace_s) * self.body_bytes_per_s


def connections_that_fit(wanted: int, descriptors: int, reserved: int) -> int:
    """How many connections a server may hold in a process with this many file descriptors.

    The process keeps `reserved` ones, and at least a quarter, for the database, the cluster and files.
    """
    return max(1, min(wanted, descriptors - max(reserved, descriptors // 4)))
