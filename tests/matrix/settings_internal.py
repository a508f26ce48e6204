"""Pools, queues and shares of memory, each exceeded."""

import socket
import time

from cases import case, limited
from certificates import certificates, over_tls
from server import check, equal, free_port, until
from settings_limits import flood_is_bounded
from websocket import WebSocket

# A limit on what all clients may hold, so large that only one share of it is exceeded.
LARGE = "400MB"


def is_embedded(place):
    """Returns whether the R session accepts the connections. Behind the front end, the limits of the rings apply (docs/rings.md)."""
    return place in ("R", "option of R")


def reader_of(server, path):
    """Sends a GET on a connection with small buffers, and reads nothing yet."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(60)
    client.connect((server.host, server.port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    return client


@case("http2_max_concurrent_streams", "http2_max_header_list_size")
def limits_of_http2_are_announced_to_clients(place):
    limits = {"http2_max_concurrent_streams": 7, "http2_max_header_list_size": 20000}
    with over_tls(place, {"limits": limits}) as server:
        server.tls = certificates().trusted(protocols=["h2"])
        announced = http2_settings(server)
        # A head is received up to twice the limit, so that it is refused with a response.
        equal((announced.get(3), announced.get(6)), (7, 2 * 20000), "SETTINGS_MAX_CONCURRENT_STREAMS and _MAX_HEADER_LIST_SIZE")


def http2_settings(server):
    """Returns the settings that the server announces in its first frame, by number."""
    with server.connect() as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")
        head = b""
        while len(head) < 9 or len(head) < 9 + int.from_bytes(head[:3], "big"):
            part = client.recv(4096)
            check(part, "the connection is closed")
            head += part
    pairs = head[9 : 9 + int.from_bytes(head[:3], "big")]
    return {int.from_bytes(pairs[at : at + 2], "big"): int.from_bytes(pairs[at + 2 : at + 6], "big") for at in range(0, len(pairs), 6)}


@case("kept_windows")
def kept_windows_bounds_the_contexts_of_compression(place):
    with limited(place, kept_windows=1, env={"ROOKERY_WS_COMPRESSION": "level=2,takeover=on"}) as server:
        heads = [WebSocket(server, "Sec-WebSocket-Extensions: permessage-deflate\r\n") for _ in range(2)]
        is_kept = ["no_context_takeover" not in one.head for one in heads]
        equal(is_kept, [True, False], "whether the first and the second keep a context")


@case("max_client_memory")
def max_client_memory_bounds_what_connections_hold(place):
    # 20 % for connections of 32 KiB each.
    with limited(place, max_client_memory="1MiB") as server:
        refuses_connections(server, 6)


@case("share_connections")
def share_connections_bounds_the_connections(place):
    with limited(place, max_client_memory="10MiB", share_connections=2) as server:
        refuses_connections(server, 6)


def refuses_connections(server, most):
    release = server.hold(most)
    until("they are connected", lambda: time.sleep(0.5) or True)
    check(" 503 " in server.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), "another connection is accepted")
    release()


@case("share_requests")
def share_requests_bounds_the_bodies_in_memory(place):
    with limited(place, max_client_memory="40MB", share_requests=1) as server:
        head = "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\nConnection: close\r\n\r\n"
        with server.connect() as client:
            client.sendall(head.encode() + b"x" * 800000)
            check(" 503 " in server.drain(client), "a body of twice the share is kept")


@case("share_messages")
def share_messages_bounds_incomplete_messages(place):
    with limited(place, max_client_memory="40MB", share_messages=1) as server:
        client = WebSocket(server)
        client.send("x" * 1000000, begin=900000)
        equal(client.ending(), 1013, "the close code")


def sent_while_r_is_busy(server, size, most):
    """Returns how many bytes of messages the server takes while R answers nothing."""
    client = WebSocket(server)
    release = server.hold(1)
    time.sleep(0.5)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    client.socket.settimeout(1.5)
    sent = 0
    try:
        while sent < most:
            client.send("x" * size)
            sent += size
    except TimeoutError:
        pass
    release()
    client.close()
    return sent


@case("ws_max_receive_queue_messages")
def ws_max_receive_queue_messages_stops_reading(place):
    with limited(place, ws_max_receive_queue_messages=11) as server:
        if not is_embedded(place):
            return
        # By default the next limit is 8 MiB.
        check(sent_while_r_is_busy(server, 10000, 7000000) < 7000000, "it reads on")


@case("ws_max_receive_queue_size")
def ws_max_receive_queue_size_stops_reading(place):
    with limited(place, ws_max_receive_queue_size=100000) as server:
        if not is_embedded(place):
            return
        check(sent_while_r_is_busy(server, 50000, 7000000) < 7000000, "it reads on")


@case("share_waiting")
def share_waiting_stops_reading(place):
    with limited(place, max_client_memory=LARGE, share_waiting=1, ws_max_receive_queue_size="60MB") as server:
        if not is_embedded(place):
            return
        # By default the share is 20 MB, and here 4 MB.
        check(sent_while_r_is_busy(server, 60000, 15000000) < 15000000, "it reads on")


@case("max_stream_queue_size")
def max_stream_queue_size_ends_a_stream_that_is_not_read(place):
    with limited(place, max_stream_queue_size="100kB") as server, reader_of(server, "/pour") as client:
        time.sleep(1)
        check(len(server.drain(client)) < 8000000, "all of it was queued")


@case("share_queues")
def share_queues_bounds_what_waits_for_clients(place):
    with limited(place, max_client_memory=LARGE, share_queues=1, ws_close_timeout="1s") as server:
        flood_is_bounded(server)


@case("share_replies")
def share_replies_bounds_responses_that_are_not_read(place):
    with limited(place, max_client_memory=LARGE, share_replies=1) as server:
        if not is_embedded(place):
            return
        # Of 4 MB each response counts for a quarter at most; by default there is room for 80 MB.
        clients = [reader_of(server, "/large?9000000") for _ in range(7)]
        time.sleep(1)
        replies = [server.drain(client) for client in clients[4:]]
        check(any(" 503 " in reply[:40] or len(reply) < 9000000 for reply in replies), "all of them are kept")
        for client in clients:
            client.close()


@case("share_compressors")
def share_compressors_sends_responses_uncompressed(place):
    for settings, encoding in (({}, "gzip"), ({"share_compressors": 1}, None)):
        with limited(place, max_client_memory="40MB", **settings) as server:
            found = server.get("/large?600000", headers={"Accept-Encoding": "gzip"}).header("Content-Encoding")
            equal(found, encoding, f"the encoding, with {settings}")


@case("stop_timeout")
def stop_timeout_is_how_long_a_response_is_waited_for(place):
    port = free_port()
    with limited(place, stop_timeout="40s") as server:
        server.get(f"/inner?{port}")
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            check(client.recv(1, socket.MSG_PEEK), "no response begins")
            stopping = server.begin("/inner-stop")
            # By default the response is cut off after a second.
            time.sleep(3)
            check(len(server.drain(client)) > 20000000, "the response is cut off")
            stopping()


@case("pool_bytes", "tls_max_handshakes")
def what_has_no_effect_outside_reaches_the_server(place):
    # See REPORTED in run.py.
    with limited(place, pool_bytes="3MiB", tls_max_handshakes=9) as server:
        reported = server.get("/settings").text.splitlines()
        for value in ("pool_bytes=3 MiB", "tls_max_handshakes=9"):
            line = next((line for line in reported if line.startswith(value)), None)
            check(line and "default" not in line, f"{value} is not among {reported}")
