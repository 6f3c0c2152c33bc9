"""Every kind of event has words of its own, by which it is found again."""

import pytest

from reservation_core.domain.event_kinds import all_kinds
from reservation_core.domain.history.event_words import kind_named, kind_words


@pytest.mark.parametrize("kind", all_kinds())
def test_every_kind_has_words_that_lead_back_to_it(kind: str) -> None:
    words = kind_words(kind)
    assert "_" not in words
    assert "gpu" not in words
    assert (kind_named(words), kind_named(kind)) == (kind, kind)


def test_kinds_of_other_versions_are_read_as_well_as_possible() -> None:
    assert kind_words("gpu_painted_red") == "GPU painted red"
    assert kind_named("painted") == "painted"
