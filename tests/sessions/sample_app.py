"""An app as people run them in jobs: pages, WebSockets, streams, uploads. `python sample_app.py PORT [TITLE]`.

It sets cookies wherever it can and tells what it was sent, as a hostile app would, too.
"""

import asyncio
import hashlib
import sys

from aiohttp import WSMsgType, web

PAGE = """<!doctype html><html lang="en"><head><title>{title}</title></head>
<body><h1>{title}</h1><p id="said"></p><script>
const socket = new WebSocket(location.origin.replace("http", "ws") + "/socket", ["echo"]);
socket.onopen = () => socket.send("x".repeat(3000000));
socket.onmessage = ({{ data }}) => document.getElementById("said").textContent = `heard ${{data.length}}`;
</script></body></html>"""


async def show(request: web.Request) -> web.Response:
    return web.Response(text=PAGE.format(title=request.app["title"]), content_type="text/html")


async def tell_headers(request: web.Request) -> web.Response:
    return web.json_response(
        {"method": request.method, "path": request.path_qs, "headers": list(request.headers.items())}
    )


async def echo(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=["echo"], max_msg_size=0)
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    return socket


async def take(request: web.Request) -> web.Response:
    digest, size = hashlib.sha256(), 0
    async for chunk in request.content.iter_any():
        digest.update(chunk)
        size += len(chunk)
    framing = "chunked" if request.headers.get("Transfer-Encoding") else "length"
    return web.json_response({"sha256": digest.hexdigest(), "size": size, "framing": framing})


async def give(request: web.Request) -> web.StreamResponse:
    """As many bytes as `size`: chunked, or with `?length` by their length."""
    size = int(request.query["size"])
    response = web.StreamResponse()
    if "length" in request.query:
        response.content_length = size
    else:
        response.enable_chunked_encoding()
    await response.prepare(request)
    piece = bytes(range(256)) * 256
    request.app["given"] = 0
    for at in range(0, size, len(piece)):
        part = piece[: size - at]
        await response.write(part)
        request.app["given"] += len(part)
    await response.write_eof()
    return response


async def tell_given(request: web.Request) -> web.Response:
    return web.json_response(request.app["given"])


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    request.app["streams"] += 1
    try:
        for number in range(100_000):
            await response.write(f"data: {number}\n\n".encode())
            await asyncio.sleep(0.05)
    finally:
        request.app["streams"] -= 1
    return response


async def tell_streams(request: web.Request) -> web.Response:
    return web.json_response(request.app["streams"])


async def set_cookies(_request: web.Request) -> web.Response:
    response = web.Response(text="set")
    for cookie in (
        "mine=1; Path=/; Domain=localhost",
        "plain=2; Path=/",
        "gpu_dev_session=stolen; Path=/",
        "gpu_dev_app=stolen; Path=/",
        "__Host-gpu_dev_session=stolen; Path=/; Secure",
    ):
        response.headers.add("Set-Cookie", cookie)
    return response


async def lead(_request: web.Request) -> web.Response:
    raise web.HTTPFound("/headers")


async def refuse(_request: web.Request) -> web.Response:
    """Answer before the body was read."""
    return web.Response(status=413, text="too large")


async def break_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_length = 1000
    await response.prepare(request)
    await response.write(b"only this")
    assert request.transport is not None
    request.transport.abort()
    return response


def main() -> None:
    app = web.Application(client_max_size=2**34)
    app["title"] = sys.argv[2] if len(sys.argv) > 2 else "A sample app"
    app["streams"] = app["given"] = 0
    app.add_routes(
        [
            web.get("/", show), web.get("/socket", echo), web.post("/take", take), web.get("/give", give),
            web.get("/given", tell_given), web.get("/stream", stream), web.get("/streams", tell_streams),
            web.get("/cookies", set_cookies), web.get("/lead", lead), web.post("/refuse", refuse),
            web.get("/break", break_off), web.route("*", "/headers", tell_headers),
        ]
    )  # fmt: skip
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)


if __name__ == "__main__":
    main()
