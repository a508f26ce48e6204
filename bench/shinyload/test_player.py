"""Tests of the player with recordings and messages, against sockets of its own, without R.

    python3 -m unittest discover -s bench/shinyload
"""

import asyncio
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import player  # noqa: E402


def recording(*events):
    file = tempfile.NamedTemporaryFile("w", suffix=".log", delete=False)
    file.write("# version: 1\n" + "".join(json.dumps(event) + "\n" for event in events))
    file.close()
    return file.name


def at(second, **fields):
    return {"begin": f"2026-11-22T00:00:{second:06.3f}Z", **fields}


NOTHING = '{"errors":[],"values":[],"inputMessages":[]}'


class Reading(unittest.TestCase):
    def test_the_recording_that_is_kept_is_a_whole_session(self):
        events = player.read_recording(pathlib.Path(__file__).parent / "recording.log")
        kinds = [event.type for event in events]
        self.assertEqual(kinds[0], "REQ_HOME")
        self.assertEqual(kinds[-1], "WS_CLOSE")
        self.assertEqual(kinds.count("WS_RECV_INIT"), 1)
        self.assertGreaterEqual(kinds.count("WS_RECV"), 4)
        self.assertTrue(any("/download/" in event.fields.get("url", "") for event in events))

    def test_what_is_not_played_is_refused(self):
        with self.assertRaisesRegex(ValueError, "REQ_POST"):
            player.read_recording(recording(at(1, type="REQ_POST", url="/")))
        with self.assertRaisesRegex(ValueError, "no events"):
            player.read_recording(recording())

    def test_messages_that_the_recorder_leaves_out(self):
        for message in ('{"busy":"busy"}', '{"recalculating":{"name":"x"}}', '{"progress":{}}', '{"custom":{"reactlog":1}}', "h", NOTHING):
            self.assertFalse(player.is_recorded(message), message)
        for message in ('{"values":{}}', '{"custom":{"other":1}}', '{"config":{}}', "[1]"):
            self.assertTrue(player.is_recorded(message), message)


def play(handler, users, *events):
    """Returns the result of playing these events against a server that treats each connection as
    given.
    """

    async def both():
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await asyncio.to_thread(player.play, recording(*events), "127.0.0.1", port, users, 0)
        finally:
            server.close()

    return asyncio.run(both())


class Playing(unittest.TestCase):
    def test_a_page_is_loaded_without_pauses(self):
        async def handler(reader, writer):
            while (await reader.readline()).strip():
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        # The recorded pauses add up to half an hour.
        page = [at(0, type="REQ_HOME", status=200, url="/"), at(50, type="REQ_GET", status=304, url="/")] * 20
        played, failures = play(handler, 2, *page)
        self.assertEqual(failures, [])
        self.assertEqual(len(played), 2)
        for one in played:
            self.assertLess(one.whole, 300)
            self.assertLessEqual(one.requests, one.whole)
            self.assertGreater(one.requests, 0)

    def test_pauses_are_the_users_own(self):
        events = [
            at(0, type="REQ_HOME", status=200, url="/"),
            at(1, type="REQ_GET", status=200, url="/a.js"),
            at(2, type="WS_OPEN", url="/websocket/"),
            at(2.5, type="WS_SEND", message="init"),
            at(4, type="WS_RECV_INIT", message=""),
            at(9, type="WS_RECV", message="{}"),
            at(9.25, type="WS_SEND", message="x"),
            at(10, type="WS_RECV", message="{}"),
            at(12, type="REQ_GET", status=200, url="/download"),
            at(15, type="WS_CLOSE"),
        ]
        found = player.pauses(player.read_recording(recording(*events)))
        self.assertEqual(found, [0, 0, 0, 0.5, 0, 0, 0.25, 0, 2, 3])

    def test_another_status_fails_the_session(self):
        async def handler(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")

        played, failures = play(handler, 2, at(0, type="REQ_GET", status=200, url="/"))
        self.assertEqual(played, [])
        self.assertEqual(len(failures), 2)
        self.assertIn("503 instead of 200", failures[0])


class Sockets(unittest.TestCase):
    """A minimal server, which unmasks the frames that it receives."""

    async def frame(self, reader):
        first, second = await reader.readexactly(2)
        size = second & 0x7F
        self.assertTrue(second & 0x80, "a client masks")
        if size == 126:
            size = int.from_bytes(await reader.readexactly(2), "big")
        mask = await reader.readexactly(4)
        payload = await reader.readexactly(size)
        return first, bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))

    def test_a_session_over_a_websocket(self):
        heard = []

        async def handler(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            self.assertIn(b"Sec-WebSocket-Version: 13", head)
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
            config = json.dumps({"config": {"sessionId": "abc"}}).encode()
            # A message that is not recorded, a message in two frames with a ping between them, and
            # a message of 200 bytes.
            writer.write(b"\x81\x0f" + b'{"busy":"busy"}')
            writer.write(b"\x01\x05" + config[:5] + b"\x89\x02hi" + b"\x80" + bytes([len(config) - 5]) + config[5:])
            self.assertEqual(await self.frame(reader), (0x8A, b"hi"))
            heard.append((await self.frame(reader))[1].decode())
            await asyncio.sleep(0.5)
            long = json.dumps({"values": "x" * 186}).encode()
            writer.write(b"\x81\x7e" + len(long).to_bytes(2, "big") + long)
            heard.append((await self.frame(reader))[1].decode())
            self.assertEqual(await self.frame(reader), (0x88, b"\x03\xe8"))
            writer.write(b"\x88\x02\x03\xe8")
            writer.close()

        played, failures = play(
            handler,
            1,
            at(0, type="WS_OPEN", url="/websocket/"),
            at(50, type="WS_RECV_INIT", message=""),
            at(50, type="WS_SEND", message="to ${SESSION}"),
            at(59, type="WS_RECV", message='{"values":{}}'),
            at(59, type="WS_SEND", message="y" * 300),
            at(59, type="WS_CLOSE"),
        )
        self.assertEqual(failures, [])
        self.assertEqual(len(played), 1)
        self.assertEqual(heard, ["to abc", "y" * 300])
        self.assertGreaterEqual(played[0].message, 0.45)
        self.assertLess(played[0].whole, 45)

    def test_a_message_of_another_kind_fails_the_session(self):
        async def handler(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + b'\x81\x0e{"values":"x"}')

        played, failures = play(
            handler, 1, at(0, type="WS_OPEN", url="/"), at(0, type="WS_RECV", message='{"errors":1}'), at(0, type="WS_CLOSE")
        )
        self.assertEqual(played, [])
        self.assertIn("unlike the recorded", failures[0])


if __name__ == "__main__":
    unittest.main()
