"""What a maintenance window does is said as it is: also of a booking that loses its middle."""

from datetime import UTC, datetime

import pytest

from reservation_core.domain.bookings.windows import Fate, fate_words

NINE, TWELVE = (datetime(2030, 1, 11, hour, tzinfo=UTC) for hour in (9, 12))
AT_NINE, AT_TWELVE = ("2030-01-11T09:00:00.000Z", "2030-01-11T12:00:00.000Z")


@pytest.mark.parametrize(
    ("ends_at", "resumes_at", "goes_on_as", "said"),
    [
        (NINE, TWELVE, None, f"ends at {AT_NINE}, and continues at {AT_TWELVE} as another booking"),
        (NINE, TWELVE, "bkg-2", f"ends at {AT_NINE}, and continues at {AT_TWELVE} as bkg-2"),
        (NINE, NINE, None, f"moves to other GPUs at {AT_NINE}, as another booking"),
        (None, TWELVE, None, f"ends at once, and continues at {AT_TWELVE} as another booking"),
    ],
)
def test_a_booking_that_is_split_says_when_it_ends_and_continues(
    ends_at: datetime | None, resumes_at: datetime, goes_on_as: str | None, said: str
) -> None:
    assert fate_words(Fate.GOES_ON, ends_at, resumes_at, goes_on_as) == said


@pytest.mark.parametrize("fate", Fate)
def test_every_effect_has_words_of_its_own(fate: Fate) -> None:
    words = fate_words(fate, NINE, TWELVE, None)
    assert "_" not in words
    assert words not in {fate_words(other, NINE, TWELVE, None) for other in Fate if other is not fate}
