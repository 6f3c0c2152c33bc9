"""Addresses of notifications: e-mail addresses, and the URLs of webhooks."""

import re
from typing import assert_never
from urllib.parse import urlsplit

from reservation_core.domain.notices.kinds import NoticeChannel

# What RFC 5321 allows without quotes: it can't end a header or name a second mailbox.
_EMAIL = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9._:-]+")


def address_fault(channel: NoticeChannel, address: str) -> str | None:
    """What an address of a channel must be; None for one that is right."""
    match channel:
        case NoticeChannel.EMAIL:
            return None if _is_email(address) else "An e-mail address must be plain, such as ada@example.org"
        case NoticeChannel.SLACK | NoticeChannel.WEBHOOK:
            if _is_url(address):
                return None
            return "The address must be a URL like https://hooks.example.org/path, without user, password or fragment"
        case _:
            assert_never(channel)


def _is_email(address: str) -> bool:
    local, _, domain = address.rpartition("@")
    return _EMAIL.fullmatch(address) is not None and len(local) <= 64 and len(domain) <= 253


def _is_url(address: str) -> bool:
    if not _URL.fullmatch(address) or "#" in address or "\\" in address:
        return False
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    named = host is not None and _HOST.fullmatch(host) is not None and len(host) <= 253
    return named and "@" not in parts.netloc and port != 0
