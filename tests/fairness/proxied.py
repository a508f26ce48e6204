"""Attacks of one client behind a trusted proxy, HAProxy, whose connections to the server carry the requests of all clients: one after the other
over HTTP/1.1, and at the same time over HTTP/2. The proxy itself limits nothing. Honest clients have other addresses, which the proxy forwards."""

import contextlib
import functools
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from attacks import attack, rest, together
from clients import WebSocket, message
from elsewhere import ask_again_and_again, hold, opened
from server import check, free_port, until

# What clients request of the proxy, and the options with which the proxy connects to the server. HTTP/2 needs TLS.
PROTOCOLS = {"haproxy": "", "haproxy-h2": "ssl verify none alpn h2"}
# HAProxy reads nothing more from a connection while what it has read of one response does not fit into its buffer of 16 KiB for that response. So
# the window of each must be smaller, or else one client that does not read would stop the responses of all others in HAProxy.
CONFIGURATION = """
global
    tune.h2.initial-window-size 8192
defaults
    mode http
    maxconn 6000
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option forwardfor
    http-reuse always
frontend clients
    bind 127.0.0.1:{port}
    default_backend rookery
backend rookery
    server rookery 127.0.0.1:{server} {options}
"""
REMEDY = None if shutil.which("haproxy") else "there is no haproxy; this command installs it: scripts/setup"


@contextlib.contextmanager
def in_front(server, protocol):
    """Starts HAProxy in front of a server, and returns its port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="rookery-proxy-") as folder:
        configuration, told = Path(folder) / "haproxy.cfg", Path(folder) / "told"
        configuration.write_text(CONFIGURATION.format(port=port, server=server.port, options=PROTOCOLS[protocol]))
        with open(told, "wb") as output:
            process = subprocess.Popen(["haproxy", "-db", "-f", configuration], stdout=output, stderr=output)

        def is_serving():
            check(process.poll() is None, f"HAProxy has ended: {told.read_text()[-500:]}")
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True

        try:
            until("HAProxy serves", is_serving)
            yield port
        finally:
            process.kill()
            process.wait()


attack_behind_proxy = functools.partial(
    attack, "--trusted-proxies", "127.0.0.1", protocols=tuple(PROTOCOLS), modes=(2,), source="127.0.0.2"
)


@attack_behind_proxy()
def requests_that_do_not_end(address, protocol, until):
    kept = []
    with contextlib.suppress(OSError):
        kept += [opened(address, protocol, "/files/large.bin") for _ in range(200)]
    with contextlib.suppress(OSError):
        kept += [opened(address, protocol, "/small", is_upload=True) for _ in range(200)]
    together(100, lambda: kept.append(WebSocket(address, protocol)))
    hold(1000, lambda: opened(address, protocol, "/small", is_upload=True), until)


@attack_behind_proxy(busy=0.05, turns=20)
def queued_requests_and_messages(address, protocol, until):
    for _ in range(2 * address.processes - 1):
        WebSocket(address, protocol).send(message(b"sleep 0.05") * 80, until)
    ask_again_and_again(address, protocol, "/sleep?0.05", 300 * [b""], until)


@attack_behind_proxy(limits={"max_client_memory": 100_000_000}, paths=("/small", "/large?1000000"))
def unread_responses_behind_a_proxy(address, protocol, until):
    kept = []
    with contextlib.suppress(OSError):
        kept += [opened(address, protocol, "/large?5000000") for _ in range(100)]
    rest(until, kept)
