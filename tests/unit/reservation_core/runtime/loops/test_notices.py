"""Settings of mail and notices: what no notice could be sent with is said at the start, by the setting's name."""

from pathlib import Path
from typing import Any

import pydantic
import pytest

from reservation_core.domain.notices.kinds import NoticeChannel
from reservation_core.runtime.loops.notices import notice_senders
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.settings.error import SettingsError
from tests.clocks import SettableClock

MAIL = {"host": "mx.example", "sender": "gpu-dev@lab.example"}


def settings(**given: Any) -> ProcessorSettings:
    return ProcessorSettings.model_validate(given)


def test_without_settings_everything_but_mail_is_set_up() -> None:
    senders = notice_senders(settings(), SettableClock())
    assert set(senders) == {NoticeChannel.SLACK, NoticeChannel.WEBHOOK}


def test_a_mail_server_makes_mail_work_and_its_password_is_not_shown() -> None:
    given = settings(smtp={**MAIL, "user": "gpu-dev"}, smtp_password="hunter2")
    assert NoticeChannel.EMAIL in notice_senders(given, SettableClock())
    assert "hunter2" not in repr(given)
    assert "hunter2" not in given.model_dump_json()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"smtp": {"host": "mx.example"}}, "GPU_DEV_SMTP__SENDER"),
        ({"smtp": {**MAIL, "user": "x"}}, "GPU_DEV_SMTP_PASSWORD"),
        ({"smtp": MAIL, "smtp_password": "hunter2"}, "GPU_DEV_SMTP__USER"),
        ({"smtp": {**MAIL, "user": "x", "security": "none"}, "smtp_password": "hunter2"}, "GPU_DEV_SMTP__SECURITY"),
        ({"notices": {"ca_file": Path("/nowhere")}}, "GPU_DEV_NOTICES__CA_FILE"),
    ],
)
def test_what_can_not_work_is_said_by_name(given: dict[str, Any], name: str) -> None:
    with pytest.raises(SettingsError, match=name) as caught:
        notice_senders(settings(**given), SettableClock())
    assert "hunter2" not in str(caught.value)


def test_where_notices_may_go_is_written_as_people_write_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEV_NOTICES__ALLOW", "chat.lab.example, 10.0.0.0/8")
    monkeypatch.setenv("GPU_DEV_NOTICES__PUBLIC", "false")
    found = ProcessorSettings().notices
    assert (found.allow, found.public) == (("chat.lab.example", "10.0.0.0/8"), False)


@pytest.mark.parametrize(
    "given",
    [
        {"notices": {"allow": ("10.0.0.0/40",)}},
        {"notices": {"allow": ("https://x",)}},
        {"notices": {"timeout_s": 0}},
        {"notices": {"tries": 0}},
        {"smtp": {"port": 0}},
        {"smtp": {"security": "ssl"}},
        {"smtp": {"sender": "a b@c"}},
        {"smtp": {"sender": "x@y\nBcc: z"}},
    ],
)
def test_bad_values_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError):
        settings(**given)
