"""A ProxyCommand: standard input and output to a WebSocket, with a bearer token. `python stdio_proxy.py URL TOKEN`."""

import asyncio
import os
import sys

from websockets.asyncio.client import connect


async def main(url: str, token: str) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    headers = {"Authorization": f"Bearer {token}"}
    async with connect(url, additional_headers=headers, proxy=None, compression=None, max_size=None) as socket:

        async def send() -> None:
            while data := await reader.read(65536):
                await socket.send(data)
            await socket.close()

        sending = asyncio.create_task(send())
        async for message in socket:
            left = memoryview(message if isinstance(message, bytes) else message.encode())
            while left:
                left = left[os.write(1, left) :]
        sending.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
