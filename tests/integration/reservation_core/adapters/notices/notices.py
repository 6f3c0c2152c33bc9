"""Notices and destinations to try senders with."""

from datetime import UTC, datetime

from reservation_core.domain.notices.kinds import NoticeChannel
from reservation_core.domain.notices.messages import Notice, NotifiedReservation
from reservation_core.ports.people.notices import Destination, NoticeTarget

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECRET = "whsec_0123456789abcdef"
ABOUT = NotifiedReservation("job-1", "job", "<!channel> & co", "running", 2, 1, "h100", NOW, None)
NOTICE = Notice("evt-7-ntg-1", "ended", NOW, "ada", "[gpu-dev] job-1: ended", "It has ended.\n\nNothing to do.", ABOUT)


def destination(address: str, channel: NoticeChannel = NoticeChannel.WEBHOOK) -> Destination:
    """A target with this address."""
    target = NoticeTarget("ntg-1", 1, "ada", channel, None, address, NOW, NOW, None, None, None, told=True)
    return Destination(target, SECRET if channel is NoticeChannel.WEBHOOK else None, None)
