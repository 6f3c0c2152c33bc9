"""The URLs of the database and its replica, with a password from its own setting."""

from pydantic import SecretStr
from sqlalchemy.exc import ArgumentError

from reservation_core.adapters.postgres.connection.engine import engine_url
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.error import SettingsError


def database_url_of(settings: CommonSettings) -> str:
    """The database's URL. Raises SettingsError for a missing or invalid one."""
    if settings.database_url is None:
        raise SettingsError(
            "GPU_DEV_DATABASE_URL is not set. Set it to a PostgreSQL URL, or run `make up`, which brings a server."
        )
    return readable_url("GPU_DEV_DATABASE_URL", settings.database_url, settings.database_password)


def readable_url(setting: str, value: SecretStr, password: SecretStr | None) -> str:
    """The URL of a setting, with `password` if it has none. Raises SettingsError for an invalid URL."""
    url = value.get_secret_value()
    try:
        parts = engine_url(url)
    except (ArgumentError, ValueError):
        # The parser's text is left out: it may quote the password.
        raise SettingsError(
            f"{setting} is not a URL. Write it like postgresql://user:password@host:5432/database."
        ) from None
    if password is None or parts.password is not None:
        return url
    return parts.set(password=password.get_secret_value()).render_as_string(hide_password=False)
