"""The smaller requests to choose from: few, in order, and the waiting job's own is the last."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_service.web.forms.form import Form
from api_service.web.forms.job_form import typed_job
from reservation_core.domain.jobs.smaller_requests import Size, SmallerRequest, lengths_up_to, sizes_up_to


@given(st.integers(1, 1000), st.integers(1, 64))
def test_sizes_grow_up_to_the_job(nodes: int, gpus: int) -> None:
    sizes = sizes_up_to(Size(nodes, gpus))
    assert 1 <= len(sizes) <= 24
    assert sizes[-1] == Size(nodes, gpus)
    assert sizes[0] == Size(1, 1)
    totals = [size.nodes * size.gpus for size in sizes]
    assert totals == sorted(set(totals))
    assert all(size.nodes <= nodes and size.gpus <= gpus for size in sizes)


@given(st.integers(1, 90 * 86_400))
def test_lengths_grow_up_to_the_job(seconds: int) -> None:
    lengths = lengths_up_to(timedelta(seconds=seconds))
    assert 1 <= len(lengths) <= 24
    assert lengths[-1] == timedelta(seconds=seconds)
    assert lengths == sorted(set(lengths))
    assert lengths[0] > timedelta(0)


def test_the_steps_are_round() -> None:
    minutes = [length.total_seconds() / 60 for length in lengths_up_to(timedelta(hours=1, minutes=40))]
    assert minutes == [5 * number for number in range(1, 21)]


@pytest.mark.parametrize(
    ("size", "words", "key"),
    [(Size(1, 1), "1 GPU", "1x1"), (Size(1, 4), "4 GPUs", "1x4"), (Size(2, 1), "2 nodes × 1 GPU", "2x1")],
)
def test_a_size_in_words(size: Size, words: str, key: str) -> None:
    assert (size.words, size.key) == (words, key)


def test_a_smaller_request_fills_in_the_form() -> None:
    request = SmallerRequest(Size(2, 4), timedelta(hours=1, minutes=30))
    typed = typed_job(Form({name: [value] for name, value in request.fields.items()}))
    assert (typed.body["gpus"], typed.body["nodes"], typed.body["duration"], typed.wrong) == (4, 2, 5400, {})
