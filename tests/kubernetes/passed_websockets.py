"""WebSockets to pods, passed on to their kubelets message by message."""

import asyncio
from collections.abc import Mapping

import aiohttp
from aiohttp import web
from yarl import URL

STREAMS: Mapping[str, str] = {"exec": "exec", "portforward": "portForward"}
"""Where a kubelet has what a subresource asks for."""

_AT_KUBELETS = {"stdin": "input", "stdout": "output", "stderr": "error", "ports": "port"}


async def pass_on(raw: web.BaseRequest, kubelets: aiohttp.ClientSession, url: str) -> web.StreamResponse:
    """Connect a request to a kubelet; its refusal is the answer."""
    protocols = [name.strip() for name in raw.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    query = [
        (_AT_KUBELETS.get(key, key), "1" if value == "true" and key != "command" else value)
        for key, value in raw.query.items()
    ]
    target = URL(url).with_query(query)
    try:
        there = await kubelets.ws_connect(target, protocols=protocols, timeout=aiohttp.ClientWSTimeout(ws_close=1))
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
