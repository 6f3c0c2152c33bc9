"""The pages that a typed word means, and where keys lead."""

import re
from pathlib import Path

import pytest

from api_service.web.finding.results import groups_of
from api_service.web.finding.site_pages import SITE_PAGES, keys_of, pages_named, pages_of, section_of
from api_service.web.page_list import WEB_ROUTES
from reservation_core.contracts.base import SearchHit
from reservation_core.domain.similar_names import FoundKind

TEMPLATES = Path(__file__).parents[5] / "api_service" / "web" / "templates"


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("now", "/now"),
        ("book", "/calendar#book"),
        ("QUE", "/queue"),
        ("sub jo", "/submit"),
        ("slack", "/account"),
        ("secr", "/account#secrets"),
        ("quota", "/account#rules"),
        ("ssh", "/account#keys"),
    ],
)
def test_the_beginnings_of_words_find_a_page(typed: str, first: str) -> None:
    assert pages_named(typed, admin=False)[0].address == first


def test_a_name_goes_before_other_words() -> None:
    assert [page.address for page in pages_named("nodes", admin=True)] == ["/admin/nodes", "/now", "/simulate"]


def test_nothing_typed_means_every_page_of_the_visitor() -> None:
    assert pages_named("", admin=True) == list(SITE_PAGES)
    assert pages_named(" ", admin=False) == pages_of(admin=False)
    assert [page.address for page in pages_named("policy", admin=False)] == ["/account#rules"]
    assert not pages_named("cordon", admin=False)


def test_keys_lead_where_the_visitor_may_go() -> None:
    assert {"n": "/now", "c": "/calendar", "q": "/queue", "j": "/jobs"}.items() <= keys_of(admin=False).items()
    assert "a" not in keys_of(admin=False)
    keys = [page.key for page in SITE_PAGES if page.key]
    assert len(keys) == len(set(keys))
    assert "g" not in keys


def test_every_page_is_there_and_none_of_the_menus_is_missing() -> None:
    addresses = {page.address.partition("#")[0] for page in SITE_PAGES}
    assert addresses <= {route.path for route in WEB_ROUTES if route.method == "GET"}
    for menu in ("base.html", "admin/_tabs.html"):
        listed = re.findall(r'\("(/[^"]*)", "', (TEMPLATES / menu).read_text())
        assert listed
        assert set(listed) <= addresses


def test_what_was_found_is_a_link_by_kind() -> None:
    def hit(kind: FoundKind, thing: str, name: str | None = None, user: str | None = None) -> SearchHit:
        return SearchHit(kind=kind, id=thing, name=name, status=None, user=user, start=None)

    hits = [
        hit(FoundKind.NODE, "a/b&c"),
        hit(FoundKind.JOB, "job-1", "train", "bob"),
        hit(FoundKind.JOB, "job-2", None, "alice"),
        hit(FoundKind.USER, "o'neil@x"),
    ]
    groups = groups_of([], hits, lambda when: str(when), "alice")
    assert [(group.title, [link.href for link in group.links]) for group in groups] == [
        ("Jobs", ["/jobs/job-1", "/jobs/job-2"]),
        ("Nodes", ["/now?node=a%2Fb%26c"]),
        ("People", ["/admin/users?q=o%27neil%40x"]),
    ]
    assert [link.detail for link in groups[0].links] == ["job-1 · bob", ""]


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("/jobs/job-1/cancel", "/jobs"),
        ("/calendar", "/calendar"),
        ("/admin/users/ann/disable", "/admin/users"),
        ("/admin/nothing", "/admin"),
        ("/jobsite", None),
        ("/", None),
    ],
)
def test_an_address_is_below_a_page(path: str, page: str | None) -> None:
    found = section_of(path)
    assert (None if found is None else found.address) == page
