"""Which proxy the environment names for an address, and the exceptions (`NO_PROXY`).

Exceptions may be ranges of addresses, as in Go programs such as kubectl: in a cluster services have numeric addresses,
and the exception is a range (`10.96.0.0/12`), which urllib takes for a name.
"""

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network


def proxy_for(scheme: str, host: str, port: int | None, proxies: Mapping[str, str]) -> str | None:
    """The proxy's URL, or None. `proxies` are by scheme, exceptions under `no`, as in `urllib`'s `getproxies()`.

    `host` is a name, or an address without brackets.
    """
    proxy = proxies.get(scheme)
    if not proxy or is_excepted(host, port, proxies.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def is_excepted(host: str, port: int | None, entries: str) -> bool:
    """Whether one of the entries, separated by commas or spaces, covers the address.

    An entry is an address, a range, a name (with all names below it; a leading dot or `*.` changes nothing), any of
    these but a range with a port, or `*` for everything.
    """
    return any(_covers(entry, host.lower().rstrip("."), port) for entry in entries.replace(",", " ").lower().split())


def _covers(entry: str, host: str, port: int | None) -> bool:
    if entry == "*":
        return True
    if (inside := _is_inside(host, entry)) is not None:
        return inside
    name, colon, of_port = entry.rpartition(":")
    if colon and of_port.isdecimal():
        if port is None or int(of_port) != port:
            return False
        entry = name
    if (inside := _is_inside(host, entry.strip("[]"))) is not None:
        return inside
    name = entry.lstrip("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _is_inside(host: str, entry: str) -> bool | None:
    """Whether an address is in a range; None if the entry is not one."""
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        return None
    with suppress(ValueError):  # a name is in no range, as it is not resolved
        address = ip_address(host)
        return address.version == network.version and address in network
    return False
