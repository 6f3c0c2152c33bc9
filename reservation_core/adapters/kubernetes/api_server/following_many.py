"""Follow several kinds of objects as one stream: their lists, a callback after the last list, then every change."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from reservation_core.adapters.kubernetes.api_server.object_watch import ObjectWatch, ObservedObject

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FollowedKind(Generic[T]):
    """One kind of objects and its conversion `made`. `when_empty` is handled when the first list is empty."""

    watch: ObjectWatch
    made: Callable[[ObservedObject], T]
    when_empty: T | None = None


class ManyFollowing(Generic[T]):
    """Follows kinds of objects until cancelled, from new lists after each `read_anew`."""

    def __init__(self) -> None:
        self._anew = asyncio.Event()

    def read_anew(self) -> None:
        """Make `follow` start over with lists that are requested after this call."""
        self._anew.set()

    async def follow(
        self, kinds: Sequence[FollowedKind[T]], handle: Callable[[T], None], listed: Callable[[], None]
    ) -> None:
        """Call `handle` for every object, `listed` after all lists, then `handle` for every change, until cancelled."""
        while True:
            self._anew.clear()
            for kind in kinds:
                kind.watch.restart_with_list()
            following = asyncio.create_task(self._follow_all(kinds, handle, listed), name="follow all")
            asked = asyncio.create_task(self._anew.wait(), name="asked to read again")
            try:
                await asyncio.wait((following, asked), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    await following
            finally:
                following.cancel()
                asked.cancel()
                await asyncio.wait((following, asked))

    async def _follow_all(
        self, kinds: Sequence[FollowedKind[T]], handle: Callable[[T], None], listed: Callable[[], None]
    ) -> None:
        unlisted = len(kinds)

        def one_listed() -> None:
            nonlocal unlisted
            unlisted -= 1
            # After `read_anew` the caller waits for lists that are requested later.
            if unlisted == 0 and not self._anew.is_set():
                listed()

        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(_follow(kind.watch.follow_as(kind.made), kind.when_empty, handle, one_listed))


async def _follow(
    changes: AsyncGenerator[T | None, None],
    when_empty: T | None,
    handle: Callable[[T], None],
    listed: Callable[[], None],
) -> None:
    is_listing, is_empty = True, True
    async with aclosing(changes) as seen:
        async for seen_object in seen:
            if seen_object is not None:
                is_empty = False
                handle(seen_object)
            elif is_listing:
                is_listing = False
                if when_empty is not None and is_empty:
                    handle(when_empty)
                listed()
