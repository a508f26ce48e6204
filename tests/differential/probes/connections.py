"""What becomes of a connection: kept and closed, pipelined, half-closed, reset."""

from probes.base import connection, exchange, request

PERSISTENCE = {
    "11": ("HTTP/1.1", []), "11-close": ("HTTP/1.1", ["Connection: close"]), "11-keep": ("HTTP/1.1", ["Connection: keep-alive"]), "11-case": ("HTTP/1.1", ["Connection: CLOSE"]),
    "11-list": ("HTTP/1.1", ["Connection: x, close"]), "11-two": ("HTTP/1.1", ["Connection: x", "Connection: close"]), "10": ("HTTP/1.0", []), "10-keep": ("HTTP/1.0", ["Connection: keep-alive"]),
    "10-keep-case": ("HTTP/1.0", ["Connection: Keep-Alive"]), "10-close": ("HTTP/1.0", ["Connection: close"]), "11-proxy": ("HTTP/1.1", ["Proxy-Connection: close"]),
}
ANSWERS = {"body": "ok('text')", "empty": "ok('')", "none": "list(status = 204L, headers = list(), body = NULL)", "error": "stop('no')", "says-close": "list(status = 200L, headers = list(Connection = 'close'), body = 'x')",
           "says-keep": "list(status = 200L, headers = list(Connection = 'keep-alive'), body = 'x')", "file": "list(status = 200L, headers = list(), body = c(file = file.path(DIR, 'text.txt')))"}


def probes():
    """Persistence by version, header and answer; then the rarer ends."""
    for kind, (version, lines) in PERSISTENCE.items():
        for answer, code in ANSWERS.items():
            yield exchange(f"persistence/{kind}-{answer}", request(f"GET /probe {version}", lines), f"logged(call = function(req) {code})")
        yield exchange(f"persistence/{kind}-post", request(f"POST /probe {version}", [*lines, "Content-Length: 3"], b"abc"), "logged()", "POST")

    def several(count, **options):
        def script(wire):
            for index in range(count):
                wire.send(request(f"GET /{index} HTTP/1.1"))
                wire.answer()
            wire.fate()
        return script

    paths = "logged(call = function(req) ok(req$PATH_INFO))"
    yield connection("kept/ten", several(10), paths)

    def mixed(wire):
        for line, lines, body in (("GET /a HTTP/1.1", [], b""), ("POST /b HTTP/1.1", ["Content-Length: 3"], b"abc"), ("HEAD /c HTTP/1.1", [], b""),
                                  ("POST /d HTTP/1.1", ["Transfer-Encoding: chunked"], b"1\r\na\r\n0\r\n\r\n"), ("GET /e HTTP/1.1", [], b"")):
            wire.send(request(line, lines, body))
            if not wire.answer(line.split()[0]):
                break
        wire.fate()

    yield connection("kept/mixed", mixed, "logged(call = function(req) ok(if (req$REQUEST_METHOD == 'HEAD') '' else req$PATH_INFO))")
    yield connection("kept/fresh-request", several(3), "logged(call = function(req) { seen <- !is.null(req$SEEN); req$SEEN <- TRUE; ok(as.character(seen)) })")
    for count in (2, 3, 10):
        yield exchange(f"pipelined/{count}", b"".join(request(f"GET /{i} HTTP/1.1") for i in range(count)), paths, answers=count)
    yield exchange("pipelined/static", request("GET /s/text.txt HTTP/1.1") * 2, "logged(staticPaths = list(s = DIR))", answers=2)
    yield exchange("pipelined/post", request("POST /1 HTTP/1.1", ["Content-Length: 3"], b"abc") + request("GET /2 HTTP/1.1"), paths, "POST", answers=2)
    yield exchange("pipelined/after-close", request("GET /1 HTTP/1.1", ["Connection: close"]) + request("GET /2 HTTP/1.1"), paths, answers=1)
    yield exchange("pipelined/crlf-between", request("GET /1 HTTP/1.1") + b"\r\n\r\n", paths)

    def one_after_a_crlf(wire):
        wire.send(request("GET /1 HTTP/1.1"))
        wire.answer()
        wire.send(b"\r\n" + request("GET /2 HTTP/1.1"))
        wire.answer()
        wire.fate()

    yield connection("kept/crlf-before-the-second", one_after_a_crlf, paths)

    def nonsense_after(wire):
        wire.send(request("GET /1 HTTP/1.1"))
        wire.answer()
        wire.send(b"nonsense\r\n\r\n")
        wire.answer()
        wire.end()

    yield connection("kept/nonsense-after", nonsense_after, paths)

    def half(data):
        def script(wire):
            wire.send(data)
            wire.shut()
            wire.answer()
            wire.end()
        return script

    yield connection("half-closed/get", half(request()), "logged(call = function(req) { Sys.sleep(0.05); ok() })")
    yield connection("half-closed/post", half(request("POST /probe HTTP/1.1", ["Content-Length: 3"], b"abc")), "logged()")
    yield connection("half-closed/body-cut", half(request("POST /probe HTTP/1.1", ["Content-Length: 9"], b"abc")), "logged()")
    yield connection("half-closed/head-cut", half(b"GET /probe HTTP/1.1\r\nHo"), "logged()")
    yield connection("half-closed/nothing", half(b""), "logged()")
    yield connection("half-closed/static", half(request("GET /s/text.txt HTTP/1.1")), "logged(staticPaths = list(s = DIR))")

    def aborted(data):
        def script(wire):
            wire.send(data)
            wire.side.barrier()
            wire.abort()
        return script

    yield connection("reset/after-request", aborted(request()), "logged()")
    yield connection("reset/in-head", aborted(b"GET /pro"), "logged()")
    yield connection("reset/in-body", aborted(request("POST /probe HTTP/1.1", ["Content-Length: 9"], b"abc")), "logged()")
    yield connection("reset/nothing", aborted(b""), "logged()")

    def slow(wire):
        # A client that takes its time is no error.
        wire.send(request(), at=range(1, len(request()), 9))
        wire.answer()
        wire.fate()

    yield connection("kept/slow-client", slow, paths)

    def lazy(wire):
        wire.send(request())
        wire.side.barrier()
        wire.answer()
        wire.fate()

    yield connection("kept/lazy-reader", lazy, "logged(call = function(req) ok(strrep('x', 3e6)))")
    yield connection("kept/lazy-reader-file", lazy, "logged(call = function(req) list(status = 200L, headers = list(), body = c(file = file.path(DIR, 'large.bin'))))")
