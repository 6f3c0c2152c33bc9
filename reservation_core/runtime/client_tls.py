"""TLS for our requests to other servers."""

import ssl
from pathlib import Path

from reservation_core.runtime.settings.error import SettingsError


def client_tls(ca_file: Path | None, setting: str) -> ssl.SSLContext:
    """A context that also trusts the authorities in `ca_file`, which `setting` names. Raises SettingsError."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"{setting} can't be used: {type(error).__name__}.") from error
    return context
