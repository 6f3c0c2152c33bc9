"""Where notices may go: what is ours is out of bounds, however it is written, unless an operator has listed it."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.network.egress import EgressRules, egress_rules, refused, refused_by_name

PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
OURS = [
    "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
    "192.0.2.1", "198.18.0.1", "240.0.0.1", "255.255.255.255", "224.0.0.1",
    "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1",
    # IPv4 within IPv6: mapped, compatible, translated, 6to4, Teredo
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::1", "2002:a9fe:a9fe::", "2001:0:0:0:0:0:80ff:fefe",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_reached_over_tls_only(address: str) -> None:
    assert refused(EgressRules(), host="h.example", address=address, tls=True) is None
    assert "https" in (refused(EgressRules(), host="h.example", address=address, tls=False) or "")


@pytest.mark.parametrize("address", OURS)
def test_what_is_ours_is_never_reached_by_default(address: str) -> None:
    for tls in (True, False):
        assert refused(EgressRules(), host="h.example", address=address, tls=tls) is not None


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fd00:ec2::254", "100.100.100.200",
     "168.63.129.16"],
)  # fmt: skip
def test_a_clouds_metadata_is_never_reached_whatever_is_listed(address: str) -> None:
    rules = egress_rules(["0.0.0.0/0", "::/0", "h.example"], public=True)
    assert "metadata" in (refused(rules, host="h.example", address=address, tls=True) or "")


@pytest.mark.parametrize("address", ["", "localhost", "127.1", "0x7f000001", "not an address"])
def test_what_is_no_address_is_refused(address: str) -> None:
    assert refused(egress_rules(["h.example"], public=True), host="h.example", address=address, tls=True) is not None


def test_a_listed_range_is_reached_without_tls_too() -> None:
    rules = egress_rules(["10.1.0.0/16", "169.254.1.1", "fd00::/8"], public=False)
    for address in ("10.1.2.3", "169.254.1.1", "fd00::7", "::ffff:10.1.0.1"):
        assert refused(rules, host="h", address=address, tls=False) is None
    for address in ("10.2.0.1", "169.254.169.254", "8.8.8.8"):
        assert refused(rules, host="h", address=address, tls=True) is not None


def test_a_listed_name_may_be_private_but_not_link_local() -> None:
    rules = egress_rules(["Hooks.Lab.example", ".inside.example"], public=False)
    for host in ("hooks.lab.example", "HOOKS.lab.example.", "a.inside.example", "a.b.inside.example"):
        assert refused(rules, host=host, address="10.0.0.1", tls=False) is None
        # A cloud's metadata has to be listed by its address.
        assert refused(rules, host=host, address="169.254.169.254", tls=False) is not None
    for host in (
        "xhooks.lab.example",
        "lab.example",
        "inside.example",
        "evilinside.example",
        "inside.example.evil.org",
    ):
        assert refused(rules, host=host, address="10.0.0.1", tls=True) is not None


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "hooks.localhost.", "::1", "10.1.2.3", "127.1", "0x7f.0x1", "2130706433", "fe80::1"],
)
def test_a_host_whose_name_says_that_it_is_ours_is_refused_without_asking_for_its_address(host: str) -> None:
    assert refused_by_name(EgressRules(), host=host, tls=True) is not None


def test_a_host_is_refused_by_name_only_where_no_address_could_be_allowed() -> None:
    assert refused_by_name(EgressRules(), host="hooks.example.org", tls=True) is None
    assert "https" in (refused_by_name(EgressRules(), host="hooks.example.org", tls=False) or "")
    assert refused_by_name(EgressRules(public=False), host="hooks.example.org", tls=True) is not None
    listed = egress_rules(["127.0.0.0/8", "hooks.lab.example"], public=False)
    for host in ("127.0.0.1", "localhost", "hooks.lab.example", "any.example"):
        assert refused_by_name(listed, host=host, tls=False) is None


@pytest.mark.parametrize("entry", ["", "a b", "http://x", "10.0.0.0/40", "10.0.0.1/8", "*.example", "x/y", "-" * 300])
def test_what_can_not_be_read_is_said(entry: str) -> None:
    with pytest.raises(ValueError, match="neither a host name"):
        egress_rules([entry], public=True)


@given(st.ip_addresses())
def test_by_default_nothing_but_global_addresses(address: object) -> None:
    """The oracle is the standard library's word on the address that packets reach.

    Whether an address that embeds one of IPv4 is itself global depends on the version of Python.
    """
    if refused(EgressRules(), host="h", address=str(address), tls=True) is None:
        found = ip_address(str(address))
        if isinstance(found, IPv6Address):
            local_use = found in ip_network("64:ff9b:1::/48")
            translated = IPv4Address(int(found) & 0xFFFFFFFF) if local_use else None
            found = found.sixtofour or (found.teredo or (None, None))[1] or translated or found
        assert found.is_global
        for out_of_bounds in (found.is_loopback, found.is_link_local, found.is_private, found.is_multicast):
            assert not out_of_bounds
