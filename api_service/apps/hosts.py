"""The host names of apps: `JOB-PORT.<apps host>`, by which requests for apps are told from all others."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from api_service.problems import ProblemError
from api_service.requests import headers
from reservation_core.ports.sessions.app_passes import AppAddress
from reservation_core.runtime.settings.components import ApiSettings

_LABEL = re.compile(r"(job-[0-9a-z]{1,32})-([1-9][0-9]{0,4})")
_LARGEST_PORT = 65_535
ENTRANCE = "/.gpu-dev/enter"
"""The path at every app's address that takes tickets; the app never gets it."""
_LOCALHOST = "localhost"
_HERE = frozenset({_LOCALHOST, "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class AppsHost:
    """The name below which apps have theirs; empty: there are none. `public_url`: the pages' address for browsers."""

    name: str
    public_url: str | None

    @classmethod
    def of(cls, settings: ApiSettings) -> "AppsHost":
        return cls(settings.apps_host, settings.web.public_url)

    def takes(self, scope: Mapping[str, Any]) -> bool:
        """Whether a request is for an app, or for a name that only apps could have."""
        if not self.name:
            return False
        host = _host_name(_host(scope))
        return host.endswith(f".{self.name}") and host != _public_name(self.public_url)

    def app(self, scope: Mapping[str, Any]) -> AppAddress | None:
        """The app that a request is for."""
        label = _host_name(_host(scope)).removesuffix(f".{self.name}")
        found = _LABEL.fullmatch(label)
        if found is None or int(found[2]) > _LARGEST_PORT:
            return None
        return AppAddress(found[1], int(found[2]))

    def is_secure(self, scope: Mapping[str, Any]) -> bool:
        """Whether the browser uses TLS. A proxy's word is trusted: a lie costs the sender's browser its cookie."""
        if self.public_url is not None:
            return self.public_url.startswith("https:")
        forwarded = (headers.first(scope, b"x-forwarded-proto") or "").split(",")[0].strip()
        return "https" in (scope["scheme"], forwarded)

    def origin(self, scope: Mapping[str, Any]) -> str:
        """The origin of the app that a request is for, as its browser knows it."""
        return f"{'https' if self.is_secure(scope) else 'http'}://{_host(scope)}"

    def address(self, scope: Mapping[str, Any], app: AppAddress) -> str:
        """An app's origin, for the caller of a request to this server. Raises ProblemError (404, 409)."""
        if not self.name:
            detail = "This server opens no apps in browsers. An administrator can set GPU_DEV_APPS_HOST. Until then: "
            raise ProblemError(404, "apps_not_served", f"{detail}`gpu-dev forward {app.job_id} {app.port}`.")
        given = _host(scope) if self.public_url is None else urlsplit(self.public_url).netloc
        if self.name == _LOCALHOST and _host_name(given) not in _HERE:
            detail = (
                "Apps have addresses below localhost here, which browsers on other machines can't open. An "
                f"administrator can set GPU_DEV_APPS_HOST. Until then: `gpu-dev forward {app.job_id} {app.port}`."
            )
            raise ProblemError(409, "apps_not_reachable", detail)
        if "." in app.job_id:
            detail = "Elements of an array open no apps in browsers. Reach the port by the command line instead: "
            raise ProblemError(409, "apps_not_reachable", f"{detail}`gpu-dev forward {app.job_id} {app.port}`.")
        scheme = "https" if self.is_secure(scope) else "http"
        return f"{scheme}://{app.job_id}-{app.port}.{self.name}{_port(given)}"

    def job_page(self, scope: Mapping[str, Any], job_id: str) -> str | None:
        """The address of a job's page, where it is known from a request for an app."""
        if self.public_url is not None:
            return f"{self.public_url}/jobs/{job_id}"
        if self.name != _LOCALHOST:
            return None
        return f"{'https' if self.is_secure(scope) else 'http'}://{_LOCALHOST}{_port(_host(scope))}/jobs/{job_id}"


def _host(scope: Mapping[str, Any]) -> str:
    return (headers.first(scope, b"host") or "").lower()


def _host_name(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _port(host: str) -> str:
    """The port of a host, with its colon."""
    return host[len(_host_name(host)) :]


def _public_name(public_url: str | None) -> str:
    return "" if public_url is None else _host_name(urlsplit(public_url).netloc.lower())
