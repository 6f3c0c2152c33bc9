"""Following several kinds of objects as one: all of them once, that this was all, then every change."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from reservation_core.adapters.kubernetes.api_server.object_watch import ObjectWatch, SeenObject

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Followed(Generic[T]):
    """One kind of objects, and what is made of each. `when_none` is told when there are none at first."""

    watch: ObjectWatch
    made: Callable[[SeenObject], T]
    when_none: T | None = None


class SightsFollowing(Generic[T]):
    """Follows `kinds` until it is cancelled, and anew whenever that is asked."""

    def __init__(self) -> None:
        self._anew = asyncio.Event()

    def read_anew(self) -> None:
        """Have `follow` begin with new lists, asked for after this call."""
        self._anew.set()

    async def follow(
        self, kinds: Sequence[Followed[T]], handle: Callable[[T], None], listed: Callable[[], None]
    ) -> None:
        """Tell of everything once, then that this was all, then of every change, until cancelled."""
        while True:
            self._anew.clear()
            for kind in kinds:
                kind.watch.forget_place()
            following = asyncio.create_task(self._follow_all(kinds, handle, listed), name="follow all")
            asked = asyncio.create_task(self._anew.wait(), name="asked to read anew")
            try:
                await asyncio.wait((following, asked), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    await following
            finally:
                following.cancel()
                asked.cancel()
                await asyncio.wait((following, asked))

    async def _follow_all(
        self, kinds: Sequence[Followed[T]], handle: Callable[[T], None], listed: Callable[[], None]
    ) -> None:
        to_list = len(kinds)

        def one_listed() -> None:
            nonlocal to_list
            to_list -= 1
            # Lists that were asked for before somebody wanted new ones are not what that one waits for.
            if to_list == 0 and not self._anew.is_set():
                listed()

        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(_follow(kind.watch.told_as(kind.made), kind.when_none, handle, one_listed))


async def _follow(
    changes: AsyncGenerator[T | None, None],
    when_none: T | None,
    handle: Callable[[T], None],
    listed: Callable[[], None],
) -> None:
    first, found = True, False
    async with aclosing(changes) as seen:
        async for seen_object in seen:
            if seen_object is not None:
                found = True
                handle(seen_object)
            elif first:
                first = False
                if when_none is not None and not found:
                    handle(when_none)
                listed()
