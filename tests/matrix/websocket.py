"""A WebSocket client that sends and receives short text messages."""

import struct


class WebSocket:
    """A client that sends and receives short text messages."""

    def __init__(self, server, headers=""):
        self.socket = server.connect()
        server.opened.append(self.socket)
        self.socket.sendall(
            (f"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
             f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n").encode())
        self.head = b""
        while b"\r\n\r\n" not in self.head:
            part = self.socket.recv(1)
            if not part:
                break
            self.head += part
        self.head = self.head.decode("latin-1")
        self.status = int(self.head.split()[1]) if self.head else 0

    def send(self, text, begin=None):
        data = text.encode()
        if len(data) < 126:
            length = bytes([0x80 | len(data)])
        else:
            length = struct.pack("!BH", 0xFE, len(data)) if len(data) < 65536 else struct.pack("!BQ", 0xFF, len(data))
        self.socket.sendall((b"\x81" + length + bytes(4) + data)[:begin])

    def frame(self):
        """Returns opcode and payload of the next frame; opcode 0 when the connection is closed."""
        def exactly(count):
            data = b""
            while len(data) < count:
                part = self.socket.recv(count - len(data))
                if not part:
                    raise EOFError
                data += part
            return data
        try:
            first, second = exactly(2)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack("!H", exactly(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", exactly(8))[0]
            return first & 0x0F, exactly(length)
        except (EOFError, ConnectionResetError):
            return 0, b""

    def ending(self):
        """Returns the code of the close frame, or 1006 where there is none."""
        while True:
            opcode, data = self.frame()
            if opcode == 8:
                return struct.unpack("!H", data[:2])[0] if data else 1005
            if opcode == 0 and not data:
                return 1006

    def close(self):
        self.socket.close()
