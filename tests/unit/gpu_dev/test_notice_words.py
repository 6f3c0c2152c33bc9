"""Words of `notify set`: the one that is wrong is said."""

import httpx
import pytest
from typer.testing import CliRunner

from gpu_dev.commands.people import notify
from gpu_dev.commands.people.notify import read_preference
from gpu_dev.errors import UsageError
from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind
from tests.unit.gpu_dev.examples import a_client


def test_what_is_right_is_read() -> None:
    assert read_preference("ended=email,slack") == (NoticeKind.ENDED, [NoticeChannel.EMAIL, NoticeChannel.SLACK])
    assert read_preference("ended=none") == (NoticeKind.ENDED, [])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("startd=email", "'startd' is no kind of notification. Did you mean started? There are: confirmed, "),
        ("ended=mail", "'mail' is no channel. Did you mean email? Channels: email, slack, webhook, or none."),
        ("ended=email,", "'' is no channel. Channels: "),
        ("ended=", "Write ended=CHANNELS. Channels: "),
        ("ended", "Write ended=CHANNELS. Channels: "),
    ],
)
def test_the_word_that_is_wrong_is_said(word: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_preference(word)
    assert refused.value.detail.startswith(said)


@pytest.mark.parametrize(("addresses", "says"), [((), True), (("bob",), True), (("ann",), False)])
def test_notifications_without_an_address_say_that_nothing_is_sent(
    addresses: tuple[str, ...], says: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = {
        "id": "ntg-1", "channel": "email", "name": None, "address": "a@example.org", "status": "ready",
        "created_at": "2026-03-01T12:00:00Z", "verified_at": None, "delivered_at": None, "failed_at": None,
        "failure": None,
    }  # fmt: skip
    answers = {
        "/v1/users/me": {"name": "ann", "role": "user", "created_at": "2026-03-01T12:00:00Z", "disabled_at": None},
        "/v1/notifications/preferences": {"kinds": {"ended": ["email"]}},
        "/v1/notifications/targets": {"items": [target | {"user": user} for user in addresses], "next_cursor": None},
    }
    monkeypatch.setattr(
        notify, "client_for", lambda _ctx: a_client(lambda request: httpx.Response(200, json=answers[request.url.path]))
    )
    answer = CliRunner().invoke(notify.app, ["show"])
    assert (
        "You have no address yet, so nothing is sent. How to add one: gpu-dev notify add -h" in answer.output
    ) == says, answer.output
    assert "add email" not in answer.output, "not every server has a mail server"
