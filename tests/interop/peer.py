"""Python's websockets as a peer: `peer.py server plain|deflate` or `peer.py client URL plain|deflate CONNECTIONS BYTES`."""

import asyncio
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

LENGTHS = [0, 1, 125, 126, 127, 65_535, 65_536, 1 << 20]


def compression(mode: str) -> str | None:
    return "deflate" if mode == "deflate" else None


async def server(mode: str) -> None:
    async def echo(socket):
        async for message in socket:
            await socket.send(message)

    async with serve(echo, "127.0.0.1", 0, compression=compression(mode), max_size=None) as served:
        print(f"listening on ws://127.0.0.1:{served.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.Future()


async def client(url: str, mode: str, connections: int, size: int) -> None:
    async def opened():
        socket = await connect(url, compression=compression(mode), max_size=None, proxy=None)
        agreed = "permessage-deflate" in socket.response.headers.get("Sec-WebSocket-Extensions", "")
        assert agreed == (mode == "deflate")
        return socket

    async def echo(socket, message) -> None:
        await socket.send(message)
        assert await socket.recv() == message

    socket = await opened()
    for n in [*LENGTHS, size]:
        await echo(socket, ("The quick brown fox j\u00fcmps. " * (n // 16 + 1)).encode()[:n].decode(errors="ignore"))
        await echo(socket, bytes(range(256)) * (n // 256) + bytes(n % 256))
    await socket.close()
    assert socket.close_code == 1000
    many = [await opened() for _ in range(connections)]
    for n in range(3):
        await asyncio.gather(*(echo(each, bytes([n]) * 700) for each in many))
    await asyncio.gather(*(each.close(1001) for each in many))
    print("ok")


if sys.argv[1] == "server":
    asyncio.run(server(sys.argv[2]))
else:
    asyncio.run(client(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
