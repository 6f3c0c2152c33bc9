"""From where a request comes, as far as it can be known: what proxies say counts where we know them, and no further."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_LONGEST_WAY = 20
_HOUSE = 64
"""So many bits of an IPv6 address are somebody's whole network: they have all addresses below it."""
_UNKNOWN = "unknown"


def trusted_networks(entries: Sequence[str]) -> tuple[Network, ...]:
    """What operators write: addresses and CIDR ranges. Raises ValueError, also for one that is everybody."""
    found = []
    for entry in entries:
        try:
            network = ip_network(entry)
        except ValueError:
            raise ValueError(f"{entry!r} is neither an address nor a CIDR range such as 10.0.0.0/8") from None
        if network.prefixlen == 0:
            raise ValueError(f"{entry} is everybody: then anybody could say where they are. List your proxies alone")
        found.append(network)
    return tuple(found)


def source_of(peer: str | None, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """Find the source whose bucket a request takes from: an IPv4 address, or the /64 that an IPv6 address is in."""
    client = _client(peer, forwarded, trusted)
    return _UNKNOWN if client is None else _key(client)


def address_of_client(peer: str | None, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """The address that a request comes from, whole, as far as it can be known."""
    client = _client(peer, forwarded, trusted)
    return _UNKNOWN if client is None else str(client)


def _client(peer: str | None, forwarded: Sequence[str], trusted: Sequence[Network]) -> Address | None:
    """`peer` is who is connected; `forwarded` are the values of `X-Forwarded-For`, which each proxy writes the address
    of who asked it behind. So they are read from the end, as long as who wrote is a proxy of ours. A part that is no
    address ends the way at the proxy that passed it on.
    """
    here = _parsed(peer or "")
    if here is None:
        return None
    if trusted:
        way = [part for value in forwarded for part in value.split(",")]
        for part in reversed(way[-_LONGEST_WAY:]):
            if not _is_of(here, trusted):
                break
            before = _parsed(part)
            if before is None:
                break
            here = before
    return here


def counted_source(peer: str, proxies: Sequence[Network]) -> str | None:
    """Under which source a connection from an address counts; None for this machine and for proxies of ours, behind
    which many clients are."""
    address = _parsed(peer)
    if address is None or address.is_loopback or _is_of(address, proxies):
        return None
    return _key(address)


@lru_cache(maxsize=512)
def _parsed(text: str) -> Address | None:
    """An address, also with a port behind it as some proxies write it."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _is_of(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _key(address: Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    return str(ip_network((int(address), _HOUSE), strict=False))
