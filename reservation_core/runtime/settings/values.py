"""Types of single settings: how their text in the environment is read and checked."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, HttpUrl
from pydantic_settings import NoDecode

from reservation_core.domain.network.client_addresses import trusted_networks
from reservation_core.runtime.settings.section import split


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def none_if_empty(value: object) -> object:
    return None if value == "" else value


LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]
# The address of /healthz and /readyz, such as 0.0.0.0:8081; None: nowhere.
HealthListen = Annotated[str, Field(min_length=3, max_length=300)] | None
CronJobs = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,50}[a-z0-9])?$")], ...],
    NoDecode,
    BeforeValidator(split),
    Field(max_length=20),
]


def _proxies(value: tuple[str, ...]) -> tuple[str, ...]:
    trusted_networks(value)
    return value


Proxies = Annotated[
    tuple[Annotated[str, Field(min_length=2, max_length=50)], ...],
    NoDecode,
    BeforeValidator(split),
    Field(max_length=100),
    AfterValidator(_proxies),
]


def _without_secrets(url: HttpUrl | None) -> HttpUrl | None:
    if url is None:
        return None
    if url.username or url.password or url.query:
        raise ValueError("can't have a password or a query, which would be logged: use OTEL_EXPORTER_OTLP_HEADERS")
    if url.path in (None, "/"):
        raise ValueError("needs the collector's path, usually /v1/traces")
    return url


TracesUrl = Annotated[HttpUrl | None, BeforeValidator(none_if_empty), AfterValidator(_without_secrets)]

# In lower case, and without the `*.` that it may be written with.
AppsHost = Annotated[
    str,
    BeforeValidator(lambda value: value.lower().removeprefix("*.") if isinstance(value, str) else value),
    Field(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*)?$", max_length=200),
]
