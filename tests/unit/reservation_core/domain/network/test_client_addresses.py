"""Where requests come from: what nobody can say of themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.network.client_addresses import source_of, trusted_networks

PROXIES = trusted_networks(["10.0.0.0/8", "fd00::/8", "192.0.2.7"])
ADDRESSES = st.ip_addresses().map(str)
ANYTHING = st.lists(st.one_of(st.text(max_size=60), ADDRESSES, st.just("10.1.1.1")), max_size=30)


@given(ANYTHING)
def test_without_proxies_only_who_is_connected_counts(forwarded: list[str]) -> None:
    assert source_of("198.51.100.9", forwarded, ()) == "198.51.100.9"


@given(ANYTHING)
def test_who_is_no_proxy_is_not_believed(forwarded: list[str]) -> None:
    assert source_of("198.51.100.9", forwarded, PROXIES) == "198.51.100.9"


@given(ANYTHING, st.booleans(), st.booleans())
def test_what_a_client_writes_changes_nothing(forged: list[str], in_one: bool, two_proxies: bool) -> None:
    """A proxy writes who asked it behind what was there, in the same header or in one of its own."""
    way = ["198.51.100.9", "10.0.0.2"] if two_proxies else ["198.51.100.9"]
    forwarded = [", ".join([*forged, *way])] if in_one else [*forged, *way]
    assert source_of("10.0.0.1", forwarded, PROXIES) == "198.51.100.9"


@given(ANYTHING, ANYTHING)
def test_there_is_always_an_answer(one: list[str], other: list[str]) -> None:
    for peer in (None, "", *one):
        assert source_of(peer, other, PROXIES)


@pytest.mark.parametrize(
    ("peer", "forwarded", "source"),
    [
        (None, [], "unknown"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["203.0.113.5:4711"], "203.0.113.5"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::/64"),
        ("10.0.0.1", ["1.2.3.4, 203.0.113.5", "10.2.3.4,192.0.2.7"], "203.0.113.5"),
        # Nobody but proxies: the farthest.
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        # A part that is no address ends the way.
        ("10.0.0.1", ["203.0.113.5, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.5, nonsense, 10.0.0.2"], "10.0.0.2"),
        ("fd00::1", ["2001:db8::2"], "2001:db8::/64"),
        # An IPv4 proxy seen through a socket for both, and such a client.
        ("::ffff:10.0.0.1", ["::ffff:203.0.113.5"], "203.0.113.5"),
        ("2001:db8:0:1:aaaa::1", [], "2001:db8:0:1::/64"),
        ("2001:db8:0:1:bbbb::2", [], "2001:db8:0:1::/64"),
        ("fe80::1%eth0", [], "fe80::/64"),
    ],
)
def test_the_way_is_read_from_its_end(peer: str | None, forwarded: list[str], source: str) -> None:
    assert source_of(peer, forwarded, PROXIES) == source


def test_the_way_is_followed_so_far_and_no_further() -> None:
    assert source_of("10.0.0.1", [", ".join(["203.0.113.5", *["10.0.0.2"] * 50])], PROXIES) == "10.0.0.2"


@pytest.mark.parametrize("entry", ["0.0.0.0/0", "::/0", "10.0.0.1/8", "proxy.example.org", ""])
def test_who_can_be_no_proxy_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"every address|neither an address"):
        trusted_networks([entry])
