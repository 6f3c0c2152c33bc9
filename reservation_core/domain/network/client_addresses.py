"""The address of a request's client: `X-Forwarded-For` counts only from proxies that we trust."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_MOST_HOPS = 20
_IPV6_NETWORK_BITS = 64
"""An IPv6 client usually owns a whole network of this prefix length."""
_UNKNOWN = "unknown"


def trusted_networks(entries: Sequence[str]) -> tuple[Network, ...]:
    """Read addresses and CIDR ranges from settings. Raises ValueError, also for a range that covers all addresses."""
    networks = []
    for entry in entries:
        try:
            network = ip_network(entry)
        except ValueError:
            raise ValueError(f"{entry!r} is neither an address nor a CIDR range such as 10.0.0.0/8") from None
        if network.prefixlen == 0:
            raise ValueError(f"{entry} covers every address, so any client could forge its own. List only your proxies")
        networks.append(network)
    return tuple(networks)


def source_of(peer: str | None, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """The rate-limit key of a request: an IPv4 address, or the /64 of an IPv6 address."""
    client = _client(peer, forwarded, trusted)
    return _UNKNOWN if client is None else _key(client)


def address_of_client(peer: str | None, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """The full address of a request's client, or `unknown`."""
    client = _client(peer, forwarded, trusted)
    return _UNKNOWN if client is None else _text_of(client)


@lru_cache(maxsize=1024)
def _text_of(address: Address) -> str:
    return str(address)


def _client(peer: str | None, forwarded: Sequence[str], trusted: Sequence[Network]) -> Address | None:
    """The client's address. `peer` is the connected address; `forwarded` are the values of `X-Forwarded-For`.

    Each proxy appends the address that connected to it, so the values are read from the end as long as the writer is a
    trusted proxy. A part that is no address ends the search at the proxy that passed it on.
    """
    address = _parse(peer or "")
    if address is None:
        return None
    if trusted:
        hops = [part for value in forwarded for part in value.split(",")]
        for part in reversed(hops[-_MOST_HOPS:]):
            if not _is_in(address, trusted):
                break
            previous = _parse(part)
            if previous is None:
                break
            address = previous
    return address


def counted_source(peer: str, proxies: Sequence[Network]) -> str | None:
    """The source that a connection counts for; None for this machine and for trusted proxies of many clients."""
    address = _parse(peer)
    if address is None or address.is_loopback or _is_in(address, proxies):
        return None
    return _key(address)


@lru_cache(maxsize=512)
def _parse(text: str) -> Address | None:
    """Parse an address, also with the port that some proxies append."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _key(address: Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    return str(ip_network((int(address), _IPV6_NETWORK_BITS), strict=False))
