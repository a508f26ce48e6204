"""The client side of WebSocket (RFC 6455) for soak/ and shinyload/: a handshake and masked frames."""

import struct

KEY = b"\x37\xfa\x21\x3d"


def handshake(host: str, path: str, key: str = "dGhlIHNhbXBsZSBub25jZQ==") -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def frame(opcode: int, payload: bytes, key: bytes = KEY) -> bytes:
    """Returns a whole message as a client sends it."""
    size = len(payload)
    mask = int.from_bytes((key * (size // 4 + 1))[:size], "big")
    masked = (int.from_bytes(payload, "big") ^ mask).to_bytes(size, "big")
    if size < 126:
        length = bytes([0x80 | size])
    else:
        length = struct.pack(">BH", 0xFE, size) if size < 65536 else struct.pack(">BQ", 0xFF, size)
    return bytes([0x80 | opcode]) + length + key + masked
