"""Mail against a real server: what arrives, what is refused for now or for ever, and headers that nobody breaks."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from reservation_core.adapters.notices.security import SmtpSecurity
from reservation_core.adapters.notices.smtp import MailSender, MailServer, mail
from reservation_core.domain.notices.kinds import NoticeChannel
from reservation_core.ports.people.notices import NotDeliveredError, UndeliverableError
from tests.clocks import SettableClock
from tests.integration.reservation_core.adapters.notices.notices import NOTICE, destination
from tests.network.receivers import MailBox, certificates, mail_server

ADA = destination("ada@example.org", NoticeChannel.EMAIL)
PLAIN = MailServer(
    "localhost", 0, SmtpSecurity.NONE, "gpu-dev@lab.example", None, None, timeout_s=5, tls=ssl.create_default_context()
)


def sender(box: MailBox, server: MailServer = PLAIN) -> MailSender:
    return MailSender(replace(server, port=box.port), SettableClock())


async def test_a_mail_arrives_whole() -> None:
    async with mail_server() as box:
        await sender(box).send(ADA, replace(NOTICE, subject="Grüße aus dem Labor"))
    [got] = box.mails
    assert box.recipients == [["ada@example.org"]]
    assert (got["From"], got["To"]) == ("gpu-dev@lab.example", "ada@example.org")
    assert got["Subject"] == "Grüße aus dem Labor"
    assert got["Message-ID"] == f"<{NOTICE.id}@lab.example>"
    assert got["Auto-Submitted"] == "auto-generated"
    assert got["Date"] is not None
    assert got.get_content_type() == "text/plain"
    assert got.get_content().strip().splitlines() == NOTICE.text.splitlines()  # type: ignore[attr-defined]


async def test_lines_that_could_end_a_mail_do_not() -> None:
    text = "first\n.\nQUIT\nlast"
    async with mail_server() as box:
        await sender(box).send(ADA, replace(NOTICE, text=text))
    assert box.mails[0].get_content().split() == text.split()  # type: ignore[attr-defined]


@pytest.mark.parametrize("breaks", ["\n", "\r\n", "\r", "\x00\n"])
async def test_nothing_breaks_out_of_a_header(breaks: str) -> None:
    async with mail_server() as box:
        for subject, to in (
            (f"x{breaks}Bcc: eve@example.org", "ada@example.org"),
            ("x", f"ada@example.org{breaks}x: y"),
        ):
            with pytest.raises(UndeliverableError):
                await sender(box).send(destination(to, NoticeChannel.EMAIL), replace(NOTICE, subject=subject))
    assert box.mails == []
    with pytest.raises(ValueError, match=r"."):
        mail(replace(NOTICE, subject=f"x{breaks}y"), sender="a@b.c", to="d@e.f")


@pytest.mark.parametrize("where", ["rcpt", "data"])
async def test_a_servers_five_hundreds_mean_never(where: str) -> None:
    async with mail_server() as box:
        setattr(box, where, ["550 no such mailbox"])
        with pytest.raises(UndeliverableError, match="550"):
            await sender(box).send(ADA, NOTICE)


@pytest.mark.parametrize("where", ["rcpt", "data"])
async def test_a_servers_four_hundreds_mean_later(where: str) -> None:
    async with mail_server() as box:
        setattr(box, where, ["451 greylisted, try later"])
        with pytest.raises(NotDeliveredError):
            await sender(box).send(ADA, NOTICE)
        await sender(box).send(ADA, NOTICE)
    assert len(box.mails) == 1


async def test_no_server_means_later() -> None:
    async with mail_server() as box:
        pass
    with pytest.raises(NotDeliveredError, match="could not be reached"):
        await sender(box).send(ADA, NOTICE)


async def test_starttls_and_a_password(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    trusting = ssl.create_default_context(cafile=str(made.ca_file))
    server = replace(PLAIN, security=SmtpSecurity.STARTTLS, user="gpu-dev", password="hunter2", tls=trusting)
    assert "hunter2" not in repr(server)
    async with mail_server(made.server, starttls=True) as box:
        await sender(box, server).send(ADA, NOTICE)
        assert (box.users, len(box.mails)) == (["gpu-dev"], 1)
        with pytest.raises(NotDeliveredError, match="535") as caught:
            await sender(box, replace(server, password="hunter3")).send(ADA, NOTICE)
        assert "hunter3" not in str(caught.value)
        with pytest.raises(NotDeliveredError):
            await sender(box, replace(server, tls=ssl.create_default_context())).send(ADA, NOTICE)
        assert len(box.mails) == 1


async def test_tls_from_the_start(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    server = replace(PLAIN, security=SmtpSecurity.TLS, tls=ssl.create_default_context(cafile=str(made.ca_file)))
    async with mail_server(made.server) as box:
        await sender(box, server).send(ADA, NOTICE)
        assert len(box.mails) == 1


async def test_a_server_without_starttls_gets_nothing() -> None:
    async with mail_server() as box:
        with pytest.raises(NotDeliveredError):
            await sender(box, replace(PLAIN, security=SmtpSecurity.STARTTLS)).send(ADA, NOTICE)
    assert box.mails == []
