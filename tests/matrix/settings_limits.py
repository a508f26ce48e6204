"""The limits, each exceeded."""

import time

from cases import case, limited, time_until_closed
from server import check, equal, until
from websocket import WebSocket


@case("max_header_size")
def head_bytes_is_a_431(place):
    with limited(place, max_header_size=9000) as server:
        equal(server.get("/", headers={"X-Long": "x" * 20000}).status, 431, "a long head")


@case("max_body_size")
def body_bytes_is_a_413(place):
    with limited(place, max_body_size="1kB") as server:
        equal(server.request("POST", "/length", b"x" * 1000).text, "1000", "a body of the greatest length")
        equal(server.request("POST", "/length", b"x" * 1001).status, 413, "a longer one")


@case("header_timeout")
def head_time_is_a_408(place):
    with limited(place, header_timeout="1s") as server, server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        began = time.monotonic()
        check(" 408 " in server.drain(client), "no 408")
        # A head that makes no progress has 10 s.
        check(time.monotonic() - began < 9, "it had as long as by default")


@case("idle_timeout")
def idle_time_closes_a_quiet_connection(place):
    with limited(place, idle_timeout="1s") as server, server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        check(time_until_closed(client) < 30, "it is kept for longer")


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


@case("max_client_memory")
def max_client_memory_bounds_what_connections_hold(place):
    # 40 % for connections of 32 KiB each.
    with limited(place, max_client_memory="1MiB") as server:
        release = server.hold(12)
        until("they are connected", lambda: time.sleep(0.5) or True)
        check(" 503 " in server.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), "another connection is accepted")
        release()
