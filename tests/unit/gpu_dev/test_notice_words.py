"""Words of `notify set`: the one that is wrong is said."""

import pytest

from gpu_dev.commands.people.notify import read_preference
from gpu_dev.errors import UsageError
from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind


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
