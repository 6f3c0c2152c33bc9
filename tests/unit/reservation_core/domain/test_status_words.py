"""Words of statuses, the same on pages and on the command line."""

import pytest

from reservation_core.domain.status_words import cannot_start


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], False),
        (["larger_than_any_node"], True),
        (["larger_than_any_node", "not_enough_nodes"], True),
        (["not_enough_nodes", "over_quota"], False),
        (["waiting_for_gpus"], False),
    ],
)
def test_a_job_can_not_start_here_if_nothing_but_nodes_is_lacking(codes: list[str], expected: bool) -> None:
    assert cannot_start(codes) is expected
