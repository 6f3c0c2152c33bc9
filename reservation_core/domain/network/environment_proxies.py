"""Which proxy the environment names for an address, and what it excepts from that (`NO_PROXY`).

With ranges of addresses, as Go's programs have them, kubectl among them: in a cluster services are addressed by number,
and what is excepted is a range (`10.96.0.0/12`), which urllib takes for a name.
"""

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network


def proxy_for(scheme: str, host: str, port: int | None, proxies: Mapping[str, str]) -> str | None:
    """The proxy's URL, None for none. `proxies` by scheme, and under `no` what is excepted: `urllib`'s `getproxies()`.

    `host` is a name, or an address without brackets.
    """
    proxy = proxies.get(scheme)
    if not proxy or is_excepted(host, port, proxies.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def is_excepted(host: str, port: int | None, entries: str) -> bool:
    """Whether one of the entries, with commas or spaces between them, says so.

    An entry is an address, a range, a name (with all below it; a dot or `*.` before it means the same), any of these
    but a range with a port behind it, or `*` for everything.
    """
    return any(_says(entry, host.lower().rstrip("."), port) for entry in entries.replace(",", " ").lower().split())


def _says(entry: str, host: str, port: int | None) -> bool:
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
    """Whether an address is in a range, None where the entry is none."""
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        return None
    with suppress(ValueError):  # a name is in no range: it would have to be looked up
        address = ip_address(host)
        return address.version == network.version and address in network
    return False
