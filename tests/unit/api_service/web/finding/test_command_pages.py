"""What the server says of commands, as a reader of pages is told."""

import pytest

from api_service.web.finding import command_pages
from api_service.web.finding.command_pages import pages_for, text_of_pages, without_commands


@pytest.mark.parametrize(
    ("said", "kept", "addresses"),
    [
        ("You have no job job-1. `gpu-dev list` shows your jobs.", "You have no job job-1.", ["/jobs"]),
        (
            "You have no booking b. `gpu-dev book list` shows yours; or leave it out.",
            None,
            [],
        ),
        ("Not allowed. `gpu-dev policy list` shows the rules for you.", "Not allowed.", ["/account#rules"]),
        ("You have no secret x. `gpu-dev secret list` shows yours.", "You have no secret x.", ["/account#secrets"]),
        (
            "No disk data. `gpu-dev disk list --user ann` shows all. `gpu-dev disk create x` makes one.",
            "No disk data.",
            ["/disks"],
        ),
        ("3.5 of 4 are left. Wait.", "3.5 of 4 are left. Wait.", []),
        ("There is no node 'n1'. `gpu-dev nodes` lists all nodes.", "There is no node 'n1'.", ["/now"]),
        ("There is no user 'x'. `gpu-dev users list` lists all users.", "There is no user 'x'.", ["/admin/users"]),
        (
            "There is no user 'x'. `gpu-dev users add x` adds a user of this name.",
            "There is no user 'x'.",
            ["/admin/users"],
        ),
        # No page does what these do, or not all of it.
        ("Full. `gpu-dev nodes uncordon n1` ends it.", None, []),
        ("You have no key x. `gpu-dev config-ssh` needs one.", None, []),
        ("Full. See `gpu-dev disk list`, or remove files: `gpu-dev dev --disk x`.", None, []),
        ("Full. `gpu-dev lists` is another command.", None, []),
        # Nothing else would be left.
        ("`gpu-dev list` shows your jobs.", "`gpu-dev list` shows your jobs.", ["/jobs"]),
    ],
)
def test_a_page_stands_for_a_command(said: str, kept: str | None, addresses: list[str]) -> None:
    assert without_commands(said) == (said if kept is None else kept)
    assert [page.address for page in pages_for(said)] == addresses


def test_each_command_has_a_page_that_is_there() -> None:
    for command in command_pages._ADDRESSES:
        assert pages_for(f"`gpu-dev {command} x` shows it.")


def test_a_cordon_is_no_command_on_pages() -> None:
    said = "Cordoned by root: nothing new is placed here until `gpu-dev nodes uncordon gpu-07`."
    assert text_of_pages(said) == "Cordoned by root: nothing new is placed here until it is uncordoned."
    assert text_of_pages("Nothing new until `gpu-dev nodes unfence n1`.") == "Nothing new until it is unfenced."
    assert text_of_pages("Nothing new until `gpu-dev nodes release n1/1`.") == "Nothing new until it is released."
    away = "It waits until enough of them are back; `gpu-dev nodes` says why they are away. n1: Cordoned."
    assert text_of_pages(away) == "It waits until enough of them are back. n1: Cordoned."
    assert text_of_pages("Waits until 14:00.") == "Waits until 14:00."
