"""The URLs of the database and of its replica, with the password that has a file of its own."""

from pydantic import SecretStr
from sqlalchemy.exc import ArgumentError

from reservation_core.adapters.postgres.connection.engine import engine_url
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.error import SettingsError


def database_url_of(settings: CommonSettings) -> str:
    """The database's URL. Raises SettingsError when there is none, or none that can be read."""
    if settings.database_url is None:
        raise SettingsError(
            "GPU_DEV_DATABASE_URL is not set. Set it to a PostgreSQL URL, or run `make up`, which brings a server."
        )
    return readable_url("GPU_DEV_DATABASE_URL", settings.database_url, settings.database_password)


def readable_url(setting: str, value: SecretStr, password: SecretStr | None) -> str:
    """The URL that a setting holds, with `password` where it names none. Raises SettingsError when it is none."""
    url = value.get_secret_value()
    try:
        parts = engine_url(url)
    except (ArgumentError, ValueError):
        # Without the parser's own words: they may hold the password.
        raise SettingsError(
            f"{setting} is not a URL. Write it like postgresql://user:password@host:5432/database."
        ) from None
    if password is None or parts.password is not None:
        return url
    return parts.set(password=password.get_secret_value()).render_as_string(hide_password=False)
