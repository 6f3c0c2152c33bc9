"""Where notices may go: not to the machines around us, whoever asks for it.

People choose the addresses that their notices are sent to. What a server can reach and they can't (its own loopback,
the cluster's services, a cloud's metadata) is out of bounds unless an operator has listed it. What counts is the
address that is connected to, never the name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_EMBEDDING = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"), ip_network("::/96"))
"""Networks whose last 32 bits are an IPv4 address that is meant: translated (RFC 6052, 8215), compatible (RFC 4291)."""

_METADATA = frozenset(
    ip_address(address)
    for address in (
        "169.254.169.254",  # Amazon, Google, Azure, Oracle, OpenStack, DigitalOcean, IBM
        "169.254.170.2",  # Amazon ECS
        "169.254.170.23",  # Amazon EKS
        "169.254.0.23",  # Tencent
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's host, which gives out certificates and extensions' settings; a public address
        "192.0.0.192",  # Oracle, older
        "fd00:ec2::254",  # Amazon
        "fd00:ec2::23",  # Amazon EKS
        "fd20:ce::254",  # Google
    )
)
"""Where clouds give credentials to whoever asks from a machine of theirs, by their own documentation. No notice is ever
meant for one, so listing the range around it does not let any there."""


@dataclass(frozen=True, slots=True)
class EgressRules:
    """What may be reached: `hosts` (`hooks.example.org`, or `.example.org` for all below it) and `networks`, even where
    they are private or without TLS; and every public address over TLS if `public`.
    """

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()
    public: bool = True


def egress_rules(entries: Sequence[str], *, public: bool) -> EgressRules:
    """Read what operators write: host names, `.domains`, addresses and CIDR ranges. Raises ValueError."""
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
    """Why a connection to `address`, which is what `host` resolved to, may not be made; None when it may."""
    found = _meant(address)
    if found is None:
        return f"{host} has no address that can be connected to."
    if found in _METADATA:
        return f"{host} is a cloud's metadata address, which notices never go to."
    if any(found in network for network in rules.networks if network.version == found.version):
        return None
    if _listed(rules.hosts, host) and not (found.is_link_local or found.is_multicast or found.is_unspecified):
        return None
    if not (found.is_global and not found.is_multicast and not found.is_reserved and not _is_site_local(found)):
        return f"{host} is not a public address; an operator has to allow it (GPU_DEV_NOTICES__ALLOW)."
    if not rules.public:
        return f"{host} is not among the hosts that notices may go to (GPU_DEV_NOTICES__ALLOW)."
    if not tls:
        return f"{host} may only be reached by https."
    return None


def _meant(address: str) -> Address | None:
    """The address that packets end up at: IPv4 within IPv6 is taken out."""
    try:
        found = ip_address(address.split("%", 1)[0])
    except ValueError:
        return None
    if isinstance(found, IPv4Address):
        return found
    within = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
    if within is None and any(found in network for network in _EMBEDDING) and int(found) > 1:
        within = IPv4Address(int(found) & 0xFFFFFFFF)
    return within or found


def _is_site_local(found: Address) -> bool:
    return isinstance(found, IPv6Address) and found.is_site_local


def _listed(hosts: frozenset[str], host: str) -> bool:
    name = host.lower().rstrip(".")
    above = name.split(".")
    return name in hosts or any("." + ".".join(above[i:]) in hosts for i in range(1, len(above)))


def _is_host(entry: str) -> bool:
    name = entry.removeprefix(".").rstrip(".")
    return 0 < len(name) <= 253 and all(
        0 < len(part) <= 63 and part.replace("-", "").replace("_", "").isalnum() and part.isascii()
        for part in name.split(".")
    )
