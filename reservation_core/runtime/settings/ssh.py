"""Settings of SSH into jobs."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from reservation_core.runtime.settings.section import Seconds, Section
from reservation_core.runtime.settings.values import none_if_empty


class SshSettings(Section):
    """SSH into running jobs: the gateway, and `/v1/ssh` of the API."""

    # The gateway's address; empty: no gateway within `make up`.
    listen: Annotated[Annotated[str, Field(min_length=3, max_length=300)] | None, BeforeValidator(none_if_empty)] = (
        "127.0.0.1:2222"
    )
    # How long a client may take to authenticate.
    handshake_s: Annotated[float, Field(gt=0, le=600)] = 30
    # The number of clients that authenticate at the same time; a further one displaces the slowest.
    handshakes: Annotated[int, Field(ge=1, le=10_000)] = 100
    max_connections: Annotated[int, Field(ge=1, le=100_000)] = 2048  # the most connections to the gateway
    # The most programs and ports that one connection has open.
    streams_per_connection: Annotated[int, Field(ge=1, le=10_000)] = 128
    # Time between two keep-alive requests; a client that answers none of three is disconnected. 0: none are sent.
    keepalive_s: Annotated[float, Field(ge=0, le=86_400)] = 60
    # Unknown keys a second from one address, in the long run, before its clients are slowed down.
    wrong_keys_per_s: Annotated[float, Field(gt=0, le=1000)] = 1
    # Unknown keys from one address at once, before its clients are slowed down
    wrong_keys_burst: Annotated[int, Field(ge=1, le=100_000)] = 50
    # How long a client without an open job keeps its connection, such as one that only jumps to other jobs.
    idle_s: Seconds = 300
