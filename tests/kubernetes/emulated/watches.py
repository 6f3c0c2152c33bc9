"""Lists in pages and watches, as the emulator answers them."""

import asyncio
import base64
import json
from collections.abc import Mapping

from aiohttp import web

from tests.kubernetes.emulated.selectors import Matches, selector
from tests.kubernetes.emulated.store import ApiError, Change, JsonObject, Resource, Store

BOOKMARK_EVERY_S = 5.0
_LONGEST_WATCH_S = 3600.0
_TICK_S = 1.0


def page(store: Store, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> web.Response:
    """A list, or with `limit` the part of it that begins where `continue` says."""
    lets_through = selector(query)
    objects, version, after = store.objects(resource, namespace), store.version, ""
    if token := query.get("continue"):
        version, after = _continued(token)
        objects = store.objects_at(resource, version, namespace)
    limit = int(query.get("limit", "0"))
    items: list[JsonObject] = []
    metadata: JsonObject = {"resourceVersion": str(version)}
    remaining = 0
    for manifest in objects:
        if after and _place(manifest) <= after:
            continue
        if not lets_through(manifest):
            continue
        if limit and len(items) == limit:
            remaining += 1
            continue
        items.append(manifest)
    if remaining:
        place = json.dumps({"rv": version if token else store.snapshot(resource), "after": _place(items[-1])})
        metadata |= {"continue": base64.urlsafe_b64encode(place.encode()).decode()}
        if not query.get("labelSelector") and not query.get("fieldSelector"):
            metadata |= {"remainingItemCount": remaining}
    return web.json_response(
        {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": [
                {key: listed_resource[key] for key in listed_resource if key not in ("kind", "apiVersion")}
                for listed_resource in items
            ],
        }
    )


def _continued(token: str) -> tuple[int, str]:
    try:
        place = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as problem:
        raise ApiError(400, "BadRequest", "continue key is not valid") from problem
    return place["rv"], place["after"]


def _place(each: JsonObject) -> str:
    return f"{each['metadata'].get('namespace', '')}/{each['metadata']['name']}"


async def watch(store: Store, resource: Resource, namespace: str | None, raw: web.BaseRequest) -> web.StreamResponse:
    """Stream changes until `timeoutSeconds`, the reader's leaving, or a version that is no longer known."""
    query = raw.query
    lets_through = selector(query)
    asked = query.get("resourceVersion", "")
    initial = query.get("sendInitialEvents") == "true"
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    lines: list[bytes] = []
    version = store.version
    if asked in ("", "0") or initial:
        there = filter(lets_through, store.objects(resource, namespace))
        lines += [
            json.dumps({"type": "ADDED", "object": listed_resource}).encode() + b"\n" for listed_resource in there
        ]
        if initial:
            lines.append(_bookmark(resource, version, {"k8s.io/initial-events-end": "true"}))
    else:
        version = int(asked)
    await response.prepare(raw)
    wake = asyncio.Event()
    stop_listening = store.listen(resource, wake.set)
    try:
        await _stream(store, resource, namespace, raw, response, lets_through, version, lines, wake)
        await response.write_eof()
    except ConnectionError:
        return response  # the reader has gone
    finally:
        stop_listening()
    return response


async def _stream(
    store: Store,
    resource: Resource,
    namespace: str | None,
    raw: web.BaseRequest,
    response: web.StreamResponse,
    lets_through: Matches,
    version: int,
    lines: list[bytes],
    wake: asyncio.Event,
) -> None:
    clock = asyncio.get_running_loop().time
    ends_at = clock() + float(raw.query.get("timeoutSeconds", _LONGEST_WATCH_S))
    bookmarks = raw.query.get("allowWatchBookmarks") in ("true", "1")
    bookmark_at = clock() + BOOKMARK_EVERY_S
    while True:
        wake.clear()
        newest = store.version
        try:
            changes = store.changes_after(resource, version)
        except ApiError as problem:
            error = json.dumps({"type": "ERROR", "object": problem.status()}).encode() + b"\n"
            await response.write(b"".join(lines) + error)
            return
        lines += [line for change in changes if (line := _line(change, namespace, lets_through)) is not None]
        version = max(version, newest)
        over = clock() >= ends_at
        if bookmarks and (over or clock() >= bookmark_at):
            lines.append(_bookmark(resource, version))
            bookmark_at = clock() + BOOKMARK_EVERY_S
        if lines:
            await response.write(b"".join(lines))
            lines = []
        if over or raw.transport is None or raw.transport.is_closing():
            return
        try:
            async with asyncio.timeout(max(0.0, min(_TICK_S, ends_at - clock()))):
                await wake.wait()
        except TimeoutError:
            continue


def _line(change: Change, namespace: str | None, lets_through: Matches) -> bytes | None:
    """What a watcher with this selector is told of a change."""
    subject = change.new or change.old
    assert subject is not None
    if namespace is not None and subject["metadata"].get("namespace") != namespace:
        return None
    was = change.old is not None and lets_through(change.old)
    is_now = change.new is not None and lets_through(change.new)
    if is_now:
        return change.encoded("MODIFIED" if was else "ADDED")
    return change.encoded("DELETED") if was else None


def _bookmark(resource: Resource, version: int, annotations: Mapping[str, str] | None = None) -> bytes:
    metadata: JsonObject = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        metadata |= {"annotations": dict(annotations)}
    bookmark = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return json.dumps({"type": "BOOKMARK", "object": bookmark}).encode() + b"\n"
