"""How the cards of a node are joined."""

from typing import Any

import pytest

from tests.unit.reservation_core.adapters.kubernetes.nodes.read_nodes import indices, node, read


def joined(text: object, **more: Any) -> dict[str, Any]:
    """A node whose annotation says this of its links."""
    thing = node(**more)
    thing["metadata"]["annotations"]["gpu-dev/gpu-links"] = text
    return thing


@pytest.mark.parametrize("text", ["NV4 0-1 2", "X NV4 SYS; NV4 X SYS; SYS SYS X"])
def test_how_the_cards_are_joined(text: str) -> None:
    report = read(joined(text))
    assert (report.links, report.detail) == (((0, 9, 1), (9, 0, 1), (1, 1, 0)), None)
    assert read(joined(text, gpus="3")).links == report.links
    assert read(node()).links is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("X NV4;NV3 X", "its link of 0 to 1 differs from that of 1 to 0"),
        ("0", "it describes 1 GPUs, but the node has 2"),
        ("", "it is empty"),
        (["0-1"], "it is no text"),
    ],
)
def test_bad_links_are_their_nodes_detail_and_keep_nothing_from_anybody(text: object, why: str) -> None:
    report = read(joined(text))
    assert report.links is None
    assert f"gpu-dev/gpu-links can't be used, {why}" in (report.detail or "")
    assert report.schedulable
    assert indices(report) == [0, 1]
