"""Figures of the use of a GPU in words."""

import pytest

from reservation_core.domain.gpu_use.figures import error_figures, memory_figure

GIB, MIB = 2**30, 2**20


@pytest.mark.parametrize(
    ("used", "total", "words"),
    [
        (0, 80 * GIB, "0 MiB of 80 GiB"),
        (443 * MIB, 80 * GIB, "443 MiB of 80 GiB"),
        (1023 * MIB, None, "1023 MiB"),
        (GIB, 80 * GIB, "1 of 80 GiB"),
        (61.43 * GIB, 80 * GIB, "61.4 of 80 GiB"),
        (61 * GIB, None, "61 GiB"),
        (900 * GIB, 1229 * GIB, "900 GiB of 1.2 TiB"),
        (1126.4 * GIB, 1229 * GIB, "1.1 of 1.2 TiB"),
        (443 * MIB, 512 * MIB, "443 of 512 MiB"),
    ],
)
def test_memory(used: float, total: int | None, words: str) -> None:
    assert memory_figure(used, total) == words


def test_errors() -> None:
    assert error_figures([13, 79, None], [2, None, 5]) == ["Xid 79", "3 new ECC"]
    assert error_figures([None], [2, 2]) == []
    assert error_figures([], []) == []
