"""The settings of requests, responses, the log and Shiny pages."""

import json
import tempfile
import time
from pathlib import Path

from cases import case, started
from certificates import over_tls
from server import check, equal, until
from websocket import WebSocket


@case("trusted_proxies")
def trusted_proxies_may_say_who_the_client_is_and_that_it_came_by_https(place):
    for settings, scheme in (({}, "http"), ({"trusted_proxies": ["127.0.0.1"]}, "https")):
        with started(place, settings) as server:
            seen = server.get("/seen", headers={"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}).text
            check(f"rook.url_scheme={scheme}" in seen, seen)
            equal("REMOTE_ADDR=192.0.2.7" in seen, scheme == "https", seen)


@case("proxy_protocol", "proxy_protocol_from")
def proxy_protocol_names_the_client(place):
    with started(place, {"proxy_protocol": True, "proxy_protocol_from": ["127.0.0.1"]}, start=False) as server:
        head = "PROXY TCP4 192.0.2.7 127.0.0.1 40000 80\r\nGET /seen HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        until("it serves", lambda: "REMOTE_ADDR=192.0.2.7" in server.raw(head))


@case("ws_origins")
def ws_origins_refuses_pages_of_other_sites(place):
    with started(place, {"ws_origins": ["example.org"]}) as server:
        equal(WebSocket(server, "Origin: https://example.org\r\n").status, 101, "the handshake of an allowed page")
        equal(WebSocket(server, "Origin: https://example.net\r\n").status, 403, "the handshake of another page")


@case("ws_compression")
def ws_compression_is_negotiated(place):
    with started(place, {"ws_compression": True}) as server:
        head = WebSocket(server, "Sec-WebSocket-Extensions: permessage-deflate\r\n").head
        check("permessage-deflate" in head, head)


@case("interrupt_requests", "request_timeout")
def interrupt_requests_frees_r(place):
    with started(place, {"interrupt_requests": True, "limits": {"request_timeout": "1s"}}) as server:
        equal(server.get("/sleep?30").status, 504, "the overdue request")
        equal(server.get("/", timeout=15).status, 200, "the next request")


@case("error_detail")
def error_detail_message_tells_the_client(place):
    for detail, is_told in (("none", False), ("message", True)):
        with started(place, {"error_detail": detail}) as server:
            equal("this handler always fails" in server.get("/error").text, is_told, f"the message, with {detail}")


@case("request_id_header")
def request_id_header_can_be_turned_off(place):
    with started(place, {}) as server:
        check(server.get("/").header("X-Request-Id"), "no X-Request-Id by default")
    with started(place, {"request_id_header": False}) as server:
        check(not server.get("/").header("X-Request-Id"), "there is an X-Request-Id")


@case("server_timing")
def server_timing_tells_the_time_in_r(place):
    with started(place, {}) as server:
        check(not server.get("/").header("Server-Timing"), "there is a Server-Timing by default")
    with started(place, {"server_timing": True}) as server:
        response = server.get("/sleep?0.2")
        timing = ", ".join(response.headers.get_all("Server-Timing"))
        check("queue;dur=" in timing and "render;dur=" in timing and float(timing.split(" r;dur=")[1].split(",")[0]) >= 200, timing)


@case("spool_dir")
def spool_dir_holds_large_bodies(place):
    with tempfile.TemporaryDirectory() as folder, started(place, {"spool_dir": folder}) as server:
        check(folder in server.request("POST", "/spooled", b"x" * 2000000).text, "the body is not in spool_dir")


@case("log", "log_format")
def log_is_written_in_the_given_format(place):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "access.log"
        with started(place, {"log": str(path), "log_format": "json"}, log=None) as server:
            server.get("/logged")
            line = until("the line is there", lambda: path.exists() and [line for line in path.read_text().splitlines() if "/logged" in line])
            equal(json.loads(line[0])["status"], 404, "the status in the log")
            equal(json.loads(line[0])["route"], "/logged", "the route in the log")
            check(json.loads(line[0])["r_seconds"] >= 0, "the time in R")


@case("log")
def log_none_writes_no_line(place):
    with started(place, {}, log="stdout") as server:
        until("a line is written", lambda: server.get("/logged") and "/logged" in server.written())
    with started(place, {"log": "none"}, log=None) as server:
        server.get("/logged")
        time.sleep(0.3)
        check("/logged" not in server.written() + server.told(), "a line is written")


SHINY = "library(shiny)\nshinyApp(fluidPage('hello'), function(input, output) NULL)\n"


@case("reconnect")
def reconnect_reaches_the_page(place):
    with started(place, {"reconnect": "always"}, files={"app.R": SHINY}) as server:
        check('data-reconnect="always"' in server.get("/").text, "the page says something else")


@case("embed")
def embed_sends_the_cookie_to_frames_of_other_sites(place):
    with over_tls(place, {"embed": True, "workers": 2, "sticky": "cookie"}) as server:
        cookie = server.get("/", headers={"Accept": "text/html"}).header("Set-Cookie") or ""
        check("SameSite=None" in cookie and "Partitioned" in cookie, cookie)
