"""Following several kinds as one: whose lists count as all."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

from reservation_core.adapters.kubernetes.api_server.following_many import FollowedKind, ManyFollowing
from reservation_core.adapters.kubernetes.api_server.object_watch import ObjectWatch


class Overtaken:
    """A watch with nothing on it; while it is listed the first time, somebody wants new lists."""

    def __init__(self, following: ManyFollowing[str]) -> None:
        self._following = following
        self.lists = 0

    def restart_with_list(self) -> None:
        """It begins with a list anyway."""

    async def follow_as(self, _made: Callable[[Any], str]) -> AsyncGenerator[str | None, None]:
        self.lists += 1
        if self.lists == 1:
            self._following.read_anew()
        yield None
        await asyncio.Event().wait()


async def test_lists_that_were_asked_for_before_new_ones_were_wanted_do_not_count() -> None:
    following = ManyFollowing[str]()
    watch = Overtaken(following)
    heard: list[tuple[str, int]] = []
    told = asyncio.Event()

    def listed() -> None:
        heard.append(("listed", watch.lists))
        told.set()

    kinds = [FollowedKind(cast("ObjectWatch", watch), lambda _: "", when_empty="none")]
    task = asyncio.create_task(following.follow(kinds, lambda sight: heard.append((sight, watch.lists)), listed))
    async with asyncio.timeout(60):
        await told.wait()
    task.cancel()
    await asyncio.wait([task])
    assert heard == [("none", 1), ("none", 2), ("listed", 2)]
