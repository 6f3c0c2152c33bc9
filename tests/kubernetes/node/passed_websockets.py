"""WebSockets that a server passes on to another one, message by message."""

import asyncio
from collections.abc import Mapping

import aiohttp
from aiohttp import web
from yarl import URL


async def pass_on(
    raw: web.BaseRequest, client: aiohttp.ClientSession, target: URL, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Connect a request to `target`, whose refusal is the answer."""
    protocols = [name.strip() for name in raw.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    farewell = aiohttp.ClientWSTimeout(ws_close=1)
    try:
        there = await client.ws_connect(target, protocols=protocols, headers=headers, timeout=farewell)
    except aiohttp.WSServerHandshakeError as refusal:
        return web.Response(status=refusal.status)
    here = web.WebSocketResponse(protocols=[there.protocol] if there.protocol else [], timeout=1, compress=False)
    try:
        await here.prepare(raw)
        both = {asyncio.create_task(_copy(here, there)), asyncio.create_task(_copy(there, here))}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
    finally:
        await there.close()
        await here.close()
    return here


async def _copy(
    source: "web.WebSocketResponse | aiohttp.ClientWebSocketResponse",
    target: "web.WebSocketResponse | aiohttp.ClientWebSocketResponse",
) -> None:
    async for message in source:
        if message.type is aiohttp.WSMsgType.BINARY:
            await target.send_bytes(message.data)
