"""Attacks from another address than that of the honest clients: on the time of R, on the places for connections, and on memory. An honest
client waits for a few items of the attacker, however many it has sent, and is not refused."""

import contextlib
import functools
import re
import selectors
import ssl
import threading
import time

from attacks import attack_from_elsewhere, rest, together
from clients import DATA, Http2, WebSocket, connect, frame, message, request

# The seconds between two things that a slow client does, and what it sends each time: more than the 512 bytes per second below which the server
# counts it as slow.
PAUSE, PART = 0.25, bytes(256)


def as_long(until, each_second, most):
    """Returns how many connections an attack opens: `each_second` for each second that it lasts, but at most `most`."""
    return min(most, int(each_second * (until - time.monotonic())))


class Asker:
    """A connection that sends a request again and again: the next one when something of the last response arrives."""

    def __init__(self, address, protocol, path, cookie, coding=b""):
        if protocol == "h2":
            client = Http2(address)
            self.socket, self.next = client.socket, lambda: client.get(path, cookie, coding)
        else:
            fields = b"Cookie: %s\r\n" % cookie if cookie else b""
            fields += b"Accept-Encoding: %s\r\n" % coding if coding else b""
            block = b"GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n" % (path.encode(), fields)
            self.socket, self.next = connect(address, protocol), lambda: block
        self.socket.sendall(self.next())
        self.socket.setblocking(False)

    def proceed(self):
        """Sends the next request if something has arrived; raises a ConnectionError if the server has ended the connection."""
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
            if not self.socket.recv(1 << 16):
                raise ConnectionResetError("the connection was closed")
            self.socket.send(self.next())


def ask_again_and_again(address, protocol, path, cookies, until, coding=b""):
    """Keeps a connection with a request for each of `cookies`, and opens another one for each that is refused or closed."""
    missing = list(cookies)
    with selectors.DefaultSelector() as selector:
        while time.monotonic() < until:
            if missing:
                with contextlib.suppress(OSError):
                    asker = Asker(address, protocol, path, missing[-1], coding)
                    selector.register(asker.socket, selectors.EVENT_READ, (asker, missing.pop()))
            for key, _ in selector.select(0 if missing else 0.05):
                asker, cookie = key.data
                try:
                    asker.proceed()
                except OSError:
                    selector.unregister(asker.socket)
                    asker.socket.close()
                    missing.append(cookie)
                    # The server is to be kept busy with requests rather than with refusals.
                    time.sleep(0.01)


def websockets(address, protocol):
    """Returns so many WebSockets that each R process has one, although an honest client has one, too: the process with the fewest gets the next."""
    return [WebSocket(address, protocol) for _ in range(2 * address.processes - 1)]


@attack_from_elsewhere(busy=0.3, turns=4)
def message_hog(address, protocol, until):
    clients = websockets(address, protocol)
    for client in clients:
        client.send(message(b"sleep 0.3") * 80, until)
    rest(until, clients)


@attack_from_elsewhere(busy=0.3, turns=4)
def message_hog_after_many_fast_messages(address, protocol, until):
    # What R is sent at once may grow with the number of messages that it takes in a time.
    clients = websockets(address, protocol)
    for client in clients:
        client.send(message() * 2000 + message(b"sleep 0.3") * 64, until)
    rest(until, clients)


@attack_from_elsewhere(busy=0.05, turns=10)
def messages_against_requests(address, protocol, until):
    # More than R can do.
    clients = websockets(address, protocol)
    while time.monotonic() < until:
        for client in clients:
            client.send(message(b"sleep 0.05"), until)
        time.sleep(0.04)


@attack_from_elsewhere("--sticky", "cookie", busy=0.2, turns=10, modes=(1, 2))
def session_cookies(address, protocol, until):
    cookies = {}

    def visit():
        head, body = request(address, "/sleep?0.05")
        cookies[bytes(body)] = re.search(rb"(?i)\r\nset-cookie: *([^;]*)", head)[1]

    # Each response names its worker. Visitors that come together are spread over the workers.
    together(8, visit)
    ask_again_and_again(address, protocol, "/sleep?0.2", 6 * list(cookies.values()), until)


@attack_from_elsewhere(busy=0.05, turns=20)
def many_connections(address, protocol, until):
    ask_again_and_again(address, protocol, "/sleep?0.05", as_long(until, 120, 1000) * [b""], until)


@attack_from_elsewhere(busy=0.1, turns=30, paths=("/small", "/upload?3000000"))
def compressed_responses(address, protocol, until):
    # The threads that compress also write large bodies to disk, a part after the other.
    ask_again_and_again(address, protocol, "/text?60000", as_long(until, 200, 800) * [b""], until, b"gzip")


def opened(address, protocol, path, is_upload=False):
    """Returns a connection with a request that has begun, and a part of its body. What the kernel keeps for a client that reads slowly is little."""
    if protocol == "h2":
        client = Http2(address, 4096)
        client.socket.sendall(client.post(path) if is_upload else client.get(path))
        return client.socket, frame(DATA, 0, client.next - 2, PART)
    client = connect(address, protocol, 4096)
    line = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" if is_upload else b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"
    client.sendall(line % path.encode())
    return client, PART


def hold(count, opening, until, reads=1 << 16, sends=True):
    """Keeps `count` of the connections that `opening` makes, and opens another one for each that is refused or closed. In every PAUSE, each
    reads at most `reads` bytes and, if it `sends`, sends its part of a body. The time until all are open, or one is refused, does not count."""
    # What each connection sends, and the time until which it has.
    clients, is_full = {}, False
    began = opens_at = time.monotonic()
    while not is_full or time.monotonic() < until:
        if time.monotonic() >= opens_at:
            missing = count - len(clients)
            for _ in range(min(missing, 10)):
                try:
                    client, part = opening()
                    client.setblocking(False)
                    clients[client] = part, time.monotonic()
                    missing -= 1
                except OSError:
                    missing = 0
            if is_full or missing == 0:
                opens_at = time.monotonic() + PAUSE
            if not is_full and missing == 0:
                is_full, until = True, until + time.monotonic() - began
        for client, (part, done_at) in list(clients.items()):
            pauses = int((time.monotonic() - done_at) / PAUSE)
            if pauses == 0:
                continue
            clients[client] = part, done_at + pauses * PAUSE
            try:
                with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                    if not client.recv(pauses * reads):
                        raise ConnectionResetError("the connection was closed")
                if sends:
                    client.send(pauses * part)
            except OSError:
                del clients[client]
                client.close()
        time.sleep(PAUSE / 10)


@attack_from_elsewhere(protocols=("h2",), limits={"max_connections": 15})
def http2_idle_websockets(address, protocol, until):
    def opening():
        client = Http2(address)
        client.socket.sendall(client.websocket())
        return client.socket, b""

    hold(20, opening, until, sends=False)


@attack_from_elsewhere(limits={"max_connections": 60})
def slow_uploads(address, protocol, until):
    hold(80, lambda: opened(address, protocol, "/small", is_upload=True), until)


@attack_from_elsewhere(limits={"max_connections": 60})
def slow_downloads(address, protocol, until):
    # A TLS record in each pause, so that the server sees that the client reads.
    hold(80, lambda: opened(address, protocol, "/files/large.bin"), until, reads=16_384, sends=False)


@attack_from_elsewhere(limits={"max_connections": 60}, busy=0.05)
def waiting_requests(address, protocol, until):
    ask_again_and_again(address, protocol, "/sleep?0.05", 80 * [b""], until)


@attack_from_elsewhere(limits={"max_client_memory": 100_000_000}, paths=("/small", "/large?15000000"))
def unread_responses(address, protocol, until):
    # There is memory for one of them, or for that of an honest client, which reads its response. The larger one makes place.
    rest(until, [opened(address, protocol, "/large?20000000") for _ in range(2)])


@attack_from_elsewhere(limits={"max_client_memory": 100_000_000}, busy=0.2)
def large_messages_of_many_websockets(address, protocol, until):
    busy = websockets(address, protocol)
    for client in busy:
        client.send(message(b"sleep 0.2") * 60, until)

    def wait():
        client = WebSocket(address, protocol)
        client.send(3 * message(bytes(300_000), 2), until)
        rest(until, client)

    together(as_long(until, 100, 1000), wait)


def send_again_and_again(openings, until):
    """Keeps a connection for each of `openings`, which return a socket and what it sends, and opens another one for each that the server ends."""
    missing = list(openings)
    with selectors.DefaultSelector() as selector:
        while time.monotonic() < until:
            for opening in missing[:20]:
                with contextlib.suppress(OSError):
                    client, data = opening()
                    client.setblocking(False)
                    selector.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE, [opening, memoryview(data)])
                    missing.remove(opening)
            for key, events in selector.select(0.05):
                client, state = key.fileobj, key.data
                try:
                    with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                        if not events & selectors.EVENT_WRITE:
                            client.recv(1 << 16)
                            raise ConnectionResetError("the request was refused, or the connection was closed")
                        state[1] = state[1][client.send(state[1][: 1 << 18]) :]
                        if not state[1]:
                            selector.modify(client, selectors.EVENT_READ, state)
                except OSError:
                    selector.unregister(client)
                    client.close()
                    missing.append(state[0])


@attack_from_elsewhere(limits={"max_client_memory": 100_000_000}, protocols=("http", "tls"))
def all_shares_of_the_memory_at_once(address, protocol, until):
    # What is evicted or refused has to be free before others get it, and must not be kept for reuse beside what the limit counts.
    upload = b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + bytes(999_000)
    incomplete = message(bytes(60_000_000), 2)[:2_000_000]
    unread = [opened(address, protocol, "/large?3000000") for _ in range(100)]
    uploads = 500 * [lambda: (connect(address, protocol), upload)]
    send_again_and_again(uploads + 100 * [lambda: (WebSocket(address, protocol).socket, incomplete)], until)
    del unread


@attack_from_elsewhere(limits={"max_client_memory": 100_000_000}, protocols=("http", "tls"))
def long_responses_beside_uploads(address, protocol, until):
    # Each of them arrives in memory of its own, and more of them than the memory budget has room for arrive before a client's turn comes.
    upload = b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + bytes(999_000)
    ask = b"GET /large?20000000 HTTP/1.1\r\nHost: a\r\n\r\n"
    openings = 500 * [lambda: (connect(address, protocol), upload)] + 100 * [lambda: (connect(address, protocol, 4096), ask)]
    send_again_and_again(openings, until)


@attack_from_elsewhere(limits={"max_in_flight": 8}, modes=(1, 2))
def promises_that_take_long(address, protocol, until):
    # More than all workers begin at the same time, and longer than an honest client waits.
    clients = [Asker(address, protocol, "/promise?20", b"") for _ in range(40)]
    rest(until, clients)


# More than the pages that honest clients request with no cookie reserve, of which each network has an equal part.
SESSIONS = 300


@attack_from_elsewhere(limits={"max_sessions": SESSIONS}, paths=("/small", "/ws"), modes=(1, 2), protocols=("http", "tls"))
def sessions_of_one_address(address, protocol, until):
    def opening():
        client = WebSocket(address, protocol)
        return client.socket, b""

    # All that the workers have, until one is refused.
    hold(address.processes * SESSIONS + 10, opening, until, sends=False)


@attack_from_elsewhere("--sticky", "cookie", limits={"max_sessions": SESSIONS}, paths=("/page", "/ws"), modes=(1, 2), protocols=("http", "tls"))
def sessions_of_one_address_with_affinity(address, protocol, until):
    sessions_of_one_address(address, protocol, until)


@attack_from_elsewhere(busy=0.05, turns=15)
def requests_between_the_parts_of_long_messages(address, protocol, until):
    def send():
        WebSocket(address, protocol).flood(message(bytes(15 << 20), 2), until)

    senders = [threading.Thread(target=together, args=(1, send)) for _ in range(2 * address.processes)]
    for sender in senders:
        sender.start()
    ask_again_and_again(address, protocol, "/sleep?0.05", 20 * [b""], until)
    for sender in senders:
        sender.join()


# An honest client opens one session after the other, and the last may not have ended when it opens the next.
attack_on_sessions = functools.partial(
    attack_from_elsewhere, "--sticky", "cookie", limits={"max_sessions": 8}, modes=(1, 2), paths=("/small", "/ws")
)


@attack_on_sessions()
def pages_that_open_no_session(address, protocol, until):
    ask_again_and_again(address, protocol, "/small", 20 * [b""], until)


@attack_from_elsewhere(limits={"max_queued_requests": 4}, busy=0.05)
def a_queue_for_few_requests(address, protocol, until):
    ask_again_and_again(address, protocol, "/sleep?0.05", 20 * [b""], until)


@attack_from_elsewhere(protocols=("http", "tls"), paths=("/small", "/header"))
def names_of_headers(address, protocol, until):
    # R has places for the names of three of these requests.
    number = 0
    while time.monotonic() < until:
        names = "".join(f"X-{number}-{at}: a\r\n" for at in range(1500))
        number += 1
        with contextlib.suppress(OSError), contextlib.closing(connect(address, protocol)) as client:
            client.sendall(f"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{names}\r\n".encode())
            client.recv(1)
