"""The limits, each exceeded."""

import contextlib
import socket
import time

from cases import case, limited, time_until_closed
from certificates import over_tls
from server import check, equal, until
from websocket import WebSocket


@case("max_header_size")
def head_bytes_is_a_431(place):
    with limited(place, max_header_size=9000) as server:
        equal(server.get("/", headers={"X-Long": "x" * 20000}).status, 431, "a long head")


@case("max_headers")
def header_lines_is_a_431(place):
    with limited(place, max_headers=10) as server:
        equal(server.get("/", headers={f"X-{at}": "1" for at in range(20)}).status, 431, "many lines")


@case("max_body_size")
def body_bytes_is_a_413(place):
    with limited(place, max_body_size="1kB") as server:
        equal(server.request("POST", "/length", b"x" * 1000).text, "1000", "a body of the greatest length")
        equal(server.request("POST", "/length", b"x" * 1001).status, 413, "a longer one")


@case("disk_reserve", "disk_share")
def disk_reserve_is_a_507(place):
    with limited(place, disk_reserve="1000TB", disk_share=1, body_buffer_size=1000) as server:
        equal(server.request("POST", "/length", b"x" * 100000).status, 507, "a body for which the disk has no room")


@case("tls_handshake_timeout")
def handshake_time_closes_a_silent_client(place):
    with over_tls(place, {"limits": {"tls_handshake_timeout": "1s"}}) as server:
        check(time_until_closed(socket.create_connection(("127.0.0.1", server.port))) < 8, "it is kept for longer")


@case("header_timeout")
def head_time_is_a_408(place):
    with limited(place, header_timeout="1s") as server, server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        began = time.monotonic()
        check(" 408 " in server.drain(client), "no 408")
        # The default of header_grace is 10 s.
        check(time.monotonic() - began < 9, "it had as long as by default")


@case("header_grace", "min_header_rate")
def head_rate_ends_a_slow_head(place):
    with limited(place, header_grace="1s", min_header_rate=10000, header_timeout="50s") as server, server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        began = time.monotonic()
        check(" 408 " in server.drain(client), "no 408")
        # The default of header_grace is 10 s.
        check(time.monotonic() - began < 9, "it had as long as by default")


@case("idle_timeout")
def idle_time_closes_a_quiet_connection(place):
    with limited(place, idle_timeout="1s") as server, server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        check(time_until_closed(client) < 30, "it is kept for longer")


@case("min_body_rate")
def body_rate_ends_a_slow_upload(place):
    with limited(place, min_body_rate=100000, idle_timeout="1s") as server, server.connect() as client:
        client.sendall(b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        client.settimeout(0.1)
        answer = b""
        # Faster than by default, and never idle.
        for _ in range(100):
            client.sendall(b"x" * 400)
            with contextlib.suppress(TimeoutError):
                answer = client.recv(4096)
                break
        check(b" 408 " in answer, f"no 408, but {answer[:40]}")


@case("min_response_rate")
def reply_rate_ends_a_client_that_reads_too_slowly(place):
    with limited(place, min_response_rate=100000000, idle_timeout="1s") as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(b"GET /large?20000000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        client.settimeout(60)
        received = 0
        # Faster than by default, and never idle.
        for _ in range(60):
            time.sleep(0.1)
            received += len(client.recv(4096))
        check(received + len(server.drain(client)) < 20000000, "it got the whole reply")


@case("max_connections")
def connections_past_the_limit_get_503(place):
    with limited(place, max_connections=2) as server:
        waits = [server.begin("/sleep?3") for _ in range(2)]
        time.sleep(0.7)
        check(" 503 " in server.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), "the third is served")
        for wait in waits:
            wait()


@case("max_connections_per_ip")
def per_address_bounds_the_connections_of_a_client(place):
    with limited(place, max_connections_per_ip=2) as server:
        waits = [server.begin("/sleep?3") for _ in range(2)]
        time.sleep(0.7)
        check(" 503 " in server.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), "the third is served")
        for wait in waits:
            wait()


@case("ws_max_message_size")
def message_bytes_closes_with_1009(place):
    with limited(place, ws_max_message_size=1000) as server:
        client = WebSocket(server)
        client.send("x" * 1001)
        equal(client.ending(), 1009, "the close code")


def flood_is_bounded(server):
    """Checks that an app that sends without end to a client that does not read is stopped by a limit."""
    client = WebSocket(server)
    client.send("flood")
    time.sleep(1)
    received = 0
    while (frame := client.frame())[0] not in (0, 8):
        received += len(frame[1])
    check(received < 60e6, f"{received} bytes were queued")


@case("ws_max_send_queue_size")
def socket_queue_closes_a_client_that_does_not_read(place):
    with limited(place, ws_max_send_queue_size="1MB", ws_close_timeout="1s") as server:
        flood_is_bounded(server)


@case("ws_min_rate", "ws_stall_timeout")
def stall_time_ends_a_message_that_stands_still(place):
    with limited(place, ws_min_rate=100000, ws_stall_timeout="1s") as server:
        client = WebSocket(server)
        client.send("x" * 60000, begin=100)
        equal(client.ending(), 1008, "the close code")


@case("ws_ping_interval")
def ping_time_is_how_often_pings_come(place):
    with limited(place, ws_ping_interval="1s") as server:
        client = WebSocket(server)
        client.socket.settimeout(15)
        equal(client.frame()[0], 9, "the opcode of what comes")


@case("ws_ping_timeout")
def pong_time_ends_a_client_that_is_silent(place):
    with limited(place, ws_ping_interval="1s", ws_ping_timeout="1s") as server:
        client = WebSocket(server)
        client.socket.settimeout(30)
        check(client.ending(), "it is kept for longer")


@case("ws_close_timeout")
def close_time_ends_a_close_that_is_not_answered(place):
    with limited(place, ws_close_timeout="1s", ws_max_message_size=1000) as server:
        client = WebSocket(server)
        client.send("x" * 1001)
        equal(client.ending(), 1009, "the close code")
        # The default is 5 s.
        check(time_until_closed(client.socket, 30) < 4.5, "it is kept as long as by default")


@case("max_queued_requests")
def queue_requests_bounds_those_that_wait(place):
    with limited(place, max_queued_requests=1) as server:
        release = server.hold(1)
        time.sleep(0.3)
        waits = [server.begin("/") for _ in range(4)]
        replies = [wait for wait in waits if until("a reply", lambda w=wait: True)]
        time.sleep(0.5)
        release()
        check(503 in [wait().status for wait in replies], "no request is refused")
