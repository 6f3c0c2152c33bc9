"""What a job or a booking runs, in its details."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpu_dev.display.output import Column, T, View
from reservation_core.domain.jobs.workload_words import workload_words

if TYPE_CHECKING:
    from gpu_dev.wire.jobs import WorkloadSpec


def with_workload(view: View[T], workload: "WorkloadSpec | None") -> View[T]:
    """The details of one item, with what it runs."""
    if workload is None:
        return view
    facts = workload_words(workload.command, workload.image, workload.working_dir, workload.env)
    more = tuple(Column[T](title.upper(), _always(words)) for title, words in facts)
    return replace(view, columns=view.columns + more)


def _always(words: str) -> Callable[[Any], str]:
    return lambda _item: words
