"""Where notifications may be sent: not to the machines around the server.

Users choose the addresses of their notifications. Addresses that a server can reach and they can't (its loopback, the
cluster's services, a cloud's metadata) are refused unless an operator has listed them. The address that is connected to
counts, never the name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_EMBEDDING = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"), ip_network("::/96"))
"""Networks whose last 32 bits are an IPv4 address: translated (RFC 6052, 8215) or compatible (RFC 4291)."""

_METADATA = frozenset(
    ip_address(address)
    for address in (
        "169.254.169.254",  # Amazon, Google, Azure, Oracle, OpenStack, DigitalOcean, IBM
        "169.254.170.2",  # Amazon ECS
        "169.254.170.23",  # Amazon EKS
        "169.254.0.23",  # Tencent
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's host, which serves certificates and extensions' settings; a public address
        "192.0.0.192",  # Oracle, older
        "fd00:ec2::254",  # Amazon
        "fd00:ec2::23",  # Amazon EKS
        "fd20:ce::254",  # Google
    )
)
"""Where clouds serve credentials to their machines, by their documentation. These are refused even if the range around
them is listed, since no notification is meant for them."""


_ALLOW = "Give another address, or ask an administrator to add it to GPU_DEV_NOTICES__ALLOW."
_SOME_PUBLIC_ADDRESS = "1.1.1.1"
"""Stands for what a name may resolve to at best."""


@dataclass(frozen=True, slots=True)
class EgressRules:
    """Allowed destinations: `hosts` (`hooks.example.org`, or `.example.org` for all names below it) and `networks`,
    even private or without TLS; and every public address over TLS if `public`."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()
    public: bool = True


def egress_rules(entries: Sequence[str], *, public: bool) -> EgressRules:
    """Read host names, `.domains`, addresses and CIDR ranges from settings. Raises ValueError."""
    hosts: set[str] = set()
    networks: list[Network] = []
    for entry in entries:
        try:
            networks.append(ip_network(entry))
        except ValueError:
            if not _is_host(entry):
                raise ValueError(
                    f"{entry!r} is neither a host name, a .domain, an address nor a CIDR range such as 10.0.0.0/8"
                ) from None
            hosts.add(entry.lower().rstrip("."))
    return EgressRules(frozenset(hosts), tuple(networks), public)


def refused(rules: EgressRules, *, host: str, address: str, tls: bool) -> str | None:
    """Why `address`, which `host` resolved to, may not be connected to; None when it may."""
    target = _final_address(address)
    if target is None:
        return f"{host} has no address that can be connected to. Check the address."
    if target in _METADATA:
        return f"{host} is a cloud's metadata address, which notifications never go to."
    if any(target in network for network in rules.networks if network.version == target.version):
        return None
    if _is_listed(rules.hosts, host) and not (target.is_link_local or target.is_multicast or target.is_unspecified):
        return None
    site_local = isinstance(target, IPv6Address) and target.is_site_local
    if not target.is_global or target.is_multicast or target.is_reserved or site_local:
        return f"{host} is not a public address. {_ALLOW}"
    if not rules.public:
        return f"{host} is not among the hosts that notifications may go to. {_ALLOW}"
    if not tls:
        return f"{host} may only be reached by https. Give its https address."
    return None


def refused_by_name(rules: EgressRules, *, host: str, tls: bool) -> str | None:
    """Why no connection to `host` will be allowed, whatever it resolves to; None when its addresses decide."""
    name = host.lower().rstrip(".")
    last = name.rpartition(".")[2]
    if ":" in name or last.isdigit() or last.startswith("0x"):
        return refused(rules, host=host, address=name, tls=tls)
    if last == "localhost":
        return refused(rules, host=host, address="127.0.0.1", tls=tls)
    if rules.networks or _is_listed(rules.hosts, host):
        return None
    return refused(rules, host=host, address=_SOME_PUBLIC_ADDRESS, tls=tls)


def _final_address(address: str) -> Address | None:
    """The address that packets reach: an IPv4 address embedded in an IPv6 one is extracted."""
    try:
        target = ip_address(address.split("%", 1)[0])
    except ValueError:
        return None
    if isinstance(target, IPv4Address):
        return target
    embedded = target.ipv4_mapped or target.sixtofour or (target.teredo[1] if target.teredo else None)
    if embedded is None and any(target in network for network in _EMBEDDING) and int(target) > 1:
        embedded = IPv4Address(int(target) & 0xFFFFFFFF)
    return embedded or target


def _is_listed(hosts: frozenset[str], host: str) -> bool:
    name = host.lower().rstrip(".")
    labels = name.split(".")
    return name in hosts or any("." + ".".join(labels[i:]) in hosts for i in range(1, len(labels)))


def _is_host(entry: str) -> bool:
    name = entry.removeprefix(".").rstrip(".")
    return 0 < len(name) <= 253 and all(
        0 < len(part) <= 63 and part.replace("-", "").replace("_", "").isalnum() and part.isascii()
        for part in name.split(".")
    )
