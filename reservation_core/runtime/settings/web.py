"""Settings of the web pages."""

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from reservation_core.runtime.settings.section import Section

_Url = Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+$", max_length=300)]


class WebSettings(Section):
    """The web pages. Times are in seconds."""

    enabled: bool = True  # whether the API serves the web pages
    session_s: Annotated[float, Field(ge=60, le=86_400 * 7)] = 43_200  # longest time that a user stays signed in
    # The number of streams (one for each open page and log) that a user may have open, per API process.
    streams_per_user: Annotated[int, Field(ge=1, le=100_000)] = 20
    # The server's address for browsers, such as https://gpus.example.org. With https, cookies are sent over TLS alone.
    public_url: _Url | None = None
    # Sign-in on the pages at an OpenID Connect issuer: its address, which the sign-in file (GPU_DEV_AUTH__FILE) must
    # have.
    oidc_issuer: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=300)] | None = None
    # Our client id at GPU_DEV_WEB__OIDC_ISSUER
    oidc_client_id: Annotated[str, Field(min_length=1, max_length=300)] | None = None

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        if (self.oidc_issuer is None) != (self.oidc_client_id is None):
            raise ValueError("set both GPU_DEV_WEB__OIDC_ISSUER and GPU_DEV_WEB__OIDC_CLIENT_ID, or neither")
        if self.oidc_issuer is not None and self.public_url is None:
            raise ValueError("set GPU_DEV_WEB__PUBLIC_URL: the issuer sends people back to it")
        return self

    @property
    def session_lasts(self) -> timedelta:
        """The longest time that a user stays signed in."""
        return timedelta(seconds=self.session_s)
