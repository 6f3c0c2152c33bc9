"""Settings of all HTTP servers: limits for unauthenticated clients."""

from typing import Annotated

from pydantic import Field

from reservation_core.domain.network.http_limits import HttpLimits, connections_that_fit
from reservation_core.runtime.open_files import open_files
from reservation_core.runtime.settings.section import Section

_Connections = Annotated[int, Field(ge=1, le=100_000)] | None


class HttpSettings(Section):
    """Limits of the API, the admission webhook, the scheduler extender and health ports, in bytes and seconds."""

    # The largest head of a request: its line and headers
    head_bytes: Annotated[int, Field(ge=2048, le=256 * 1024)] = 16 * 1024
    head_fields: Annotated[int, Field(ge=10, le=1000)] = 100  # the most headers of a request
    head_s: Annotated[float, Field(gt=0, le=300)] = 10  # longest time for a request's head to arrive
    url_bytes: Annotated[int, Field(ge=256, le=64 * 1024)] = 8 * 1024  # the longest address of a request
    body_s: Annotated[float, Field(gt=0, le=86_400)] = 300  # longest time for a request's body to arrive
    # The lowest average rate of a body, after GPU_DEV_HTTP__BODY_GRACE_S.
    body_bytes_per_s: Annotated[float, Field(ge=0, le=1e9)] = 1024
    body_grace_s: Annotated[float, Field(ge=0, le=3600)] = 10  # for so long a body may be slower
    reader_s: Annotated[float, Field(gt=0, le=86_400)] = 60  # how long a client may read nothing of its response
    # The most connections. None: 4096 for the API, 1024 for the webhook, 500 for the extender, 64 for a health port.
    max_connections: _Connections = None
    # The most connections from one address. None: a quarter of all. Connections from this machine and from trusted
    # proxies count only in total.
    max_connections_per_address: _Connections = None
    # File descriptors that are kept for database, cluster and files; at least a quarter of all are.
    reserved_files: Annotated[int, Field(ge=16, le=100_000)] = 256

    def limits(self, connections: int) -> HttpLimits:
        """The limits of a server with this default number of connections."""
        most = connections_that_fit(self.max_connections or connections, open_files(), self.reserved_files)
        return HttpLimits(
            connections=most,
            connections_per_address=min(most, self.max_connections_per_address or max(1, most // 4)),
            head_bytes=self.head_bytes,
            head_fields=self.head_fields,
            head_s=self.head_s,
            url_bytes=self.url_bytes,
            body_s=self.body_s,
            body_bytes_per_s=self.body_bytes_per_s,
            body_grace_s=self.body_grace_s,
            reader_s=self.reader_s,
        )
