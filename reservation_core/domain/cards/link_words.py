"""How well the GPUs of a node are linked, as text and as numbers to compare.

Two forms of text are read. The matrix of `nvidia-smi topo -m`: one row per GPU, separated by `;` or a new line, words
by spaces or tabs: `X NV4 SYS;NV4 X SYS;SYS SYS X`. Or groups of GPUs that are linked better with each other than with
the rest: indices with `,` and `-`, groups separated by spaces: `0-3 4-7`. There the first word may name the links
within a group (`NV4 0-1 2-3`; default `PIX`); between groups the link is `SYS`.
"""

import re
from functools import lru_cache

Links = tuple[tuple[int, ...], ...]
"""`links[i][j]`: how well the GPUs with the indices i and j are linked, larger is better; 0 for a GPU and itself."""

MOST_LINKED_CARDS = 64
"""Links of nodes with more GPUs than this are not read."""

LONGEST_TEXT = 32 * 1024

SELF = "X"
APART = "SYS"
TOGETHER = "PIX"
_STEPS = (APART, "NODE", "PHB", "PXB", TOGETHER)
"""The path between two GPUs without NVLink, the longest first."""
_NVLINK = re.compile(r"NV([1-9][0-9]?)")
_GROUP = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*")


class BadLinksError(ValueError):
    """A text does not describe links; the message says why."""


@lru_cache(maxsize=4096)
def read_links(text: str) -> Links:
    """Read either form. Raises BadLinksError."""
    if len(text) > LONGEST_TEXT:
        raise BadLinksError(f"it is longer than {LONGEST_TEXT} characters")
    rows = [row.split() for row in re.split(r"[;\n]", text.strip().rstrip(";"))]
    if not rows[0]:
        raise BadLinksError("it is empty")
    return _read_matrix(rows) if any(SELF in row for row in rows) else _read_groups(rows)


def format_links(links: Links) -> str:
    """The matrix as text, which `read_links` reads back; equal links give equal text."""
    return ";".join(" ".join(map(link_word, row)) for row in links)


def link_words(links: Links) -> list[list[str]]:
    """The matrix in the words of `nvidia-smi topo -m`."""
    return [[link_word(strength) for strength in row] for row in links]


def link_word(strength: int) -> str:
    """The word for a number in `Links`."""
    if not strength:
        return SELF
    return _STEPS[strength - 1] if strength <= len(_STEPS) else f"NV{strength - len(_STEPS)}"


def link_strength(word: str) -> int:
    """The number in `Links` for a word. Raises BadLinksError."""
    if word == SELF:
        return 0
    if word in _STEPS:
        return _STEPS.index(word) + 1
    nvlink = _NVLINK.fullmatch(word)
    if nvlink is None:
        raise BadLinksError(f"{word[:20]!r} is none of {SELF}, {', '.join(_STEPS)} and NV1 to NV99")
    return len(_STEPS) + int(nvlink[1])


def _read_matrix(rows: list[list[str]]) -> Links:
    if len(rows) > MOST_LINKED_CARDS:
        raise BadLinksError(f"it has {len(rows)} rows, and at most {MOST_LINKED_CARDS} are read")
    if any(len(row) != len(rows) for row in rows):
        raise BadLinksError("its rows are not as long as there are rows")
    links = tuple(tuple(link_strength(word) for word in row) for row in rows)
    for one, row in enumerate(links):
        for other, strength in enumerate(row):
            if (strength == 0) != (one == other):
                raise BadLinksError(f"{SELF} must stand on the diagonal, and nowhere else")
            if strength != links[other][one]:
                raise BadLinksError(f"its link of {one} to {other} differs from that of {other} to {one}")
    return links


def _read_groups(rows: list[list[str]]) -> Links:
    words = [word for row in rows for word in row]
    within = link_strength(TOGETHER)
    if not words[0][0].isdigit():
        within = link_strength(words.pop(0))
    groups = [_read_indices(word) for word in words]
    gpus = sorted(index for group in groups for index in group)
    if not gpus or gpus != list(range(len(gpus))):
        raise BadLinksError("its groups must have each index from 0 on, and each once")
    of = {index: number for number, group in enumerate(groups) for index in group}
    apart = link_strength(APART)
    return tuple(
        tuple(0 if one == other else within if of[one] == of[other] else apart for other in gpus) for one in gpus
    )


def _read_indices(word: str) -> list[int]:
    if not _GROUP.fullmatch(word):
        raise BadLinksError(f"{word[:20]!r} is no group of indices; write it like 0-3 or 0,2")
    indices: list[int] = []
    for part in word.split(","):
        first, _, last = part.partition("-")
        end = int(last or first)
        if end < int(first) or end >= MOST_LINKED_CARDS:
            raise BadLinksError(f"{part!r} is no range of indices up to {MOST_LINKED_CARDS - 1}")
        indices += range(int(first), end + 1)
    return indices
