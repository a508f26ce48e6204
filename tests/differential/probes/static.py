"""Static paths: declarations, paths, methods, conditional headers, options, and changes while the server runs."""

import time

from probes.base import connection, exchange, request
from site_files import FILES
from wire import Wire

SINCE_THEN = "Tue, 14 Nov 2023 22:13:20 GMT"
BEFORE = "Mon, 13 Nov 2023 22:13:20 GMT"
AFTER = "Fri, 01 Jan 2100 00:00:00 GMT"

WHOLE = "logged(staticPaths = list(`/s` = DIR))"
FALLING = "logged(staticPaths = list(`/s` = staticPath(DIR, fallthrough = TRUE)))"
ROOT = "logged(staticPaths = list(`/` = staticPath(DIR, fallthrough = TRUE)))"

PATHS = [
    "/s", "/s/", "/s//", "/s/sub", "/s/sub/", "/s/sub/index.html", "/s/sub/file.txt", "/s/sub//file.txt", "/s//sub/file.txt", "/s/./text.txt", "/s/sub/../text.txt", "/s/..",
    "/s/../s/text.txt", "/s/%2e%2e/text.txt", "/s/%2e/text.txt", "/s/..foo", "/s/...", "/s/.hidden", "/s/noindex", "/s/noindex/", "/s/noindex/file.txt", "/s/none", "/s/none/", "/s/none/none", "/s/text.txt/",
    "/s/text.txt/x", "/s/text.txt?query", "/s/text.txt#frag", "/s/with%20space.txt", "/s/with+space.txt", "/s/f%C3%B6l.txt", "/s/f%c3%b6l.txt", "/%73/text.txt", "/s%2Ftext.txt", "/s/sub%2Ffile.txt", "/S/text.txt", "/s/TEXT.TXT",
    "/sx", "/s.txt", "/", "/other", "/s\\text.txt", "/s/sub\\file.txt", "/s/%5Ctext.txt", "/s/text.txt%00", "/s/%00", "/s/text.txt%20", "/s/%zz", "/s/%", "/s/" + "n" * 300, "/s/" + "n/" * 2000, "/s/text%2etxt", "/s/%74ext.txt",
    "/s/sub/deeper/file.txt", "/s/sub/deeper", "//s/text.txt", "/./s/text.txt", "/x/../s/text.txt", "/s/sub/%2e%2e/text.txt", "/s/~", "/s/*",
]

CONDITIONS = {
    "ims-same": [f"If-Modified-Since: {SINCE_THEN}"], "ims-before": [f"If-Modified-Since: {BEFORE}"], "ims-after": [f"If-Modified-Since: {AFTER}"], "ims-bad": ["If-Modified-Since: yesterday"],
    "ims-rfc850": ["If-Modified-Since: Tuesday, 14-Nov-23 22:13:20 GMT"], "ims-asctime": ["If-Modified-Since: Tue Nov 14 22:13:20 2023"], "ims-zone": ["If-Modified-Since: Tue, 14 Nov 2023 22:13:20 UTC"], "ims-empty": ["If-Modified-Since:"],
    "ims-lower": [f"if-modified-since: {AFTER}"], "ims-wrong-day": ["If-Modified-Since: Mon, 14 Nov 2023 22:13:20 GMT"], "ius": [f"If-Unmodified-Since: {BEFORE}"], "inm": ['If-None-Match: "x"'], "inm-star": ["If-None-Match: *"], "im": ['If-Match: "x"'],
    "range": ["Range: bytes=0-3"], "range-end": ["Range: bytes=-4"], "range-beyond": ["Range: bytes=9999-"], "range-bad": ["Range: lines=1-2"], "range-two": ["Range: bytes=0-1,3-4"], "gzip": ["Accept-Encoding: gzip"],
    "gzip-0": ["Accept-Encoding: gzip;q=0"], "close": ["Connection: close"], "upgrade": ["Connection: Upgrade", "Upgrade: foo"], "upgrade-websocket": ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="],
    "length-0": ["Content-Length: 0"], "two-hosts": ["Host: other"], "accept": ["Accept: image/png"], "expect": ["Expect: 100-continue"],
}

OPTIONS = {
    "default": "", "no-index": "indexhtml = FALSE", "falling": "fallthrough = TRUE", "charset": "html_charset = 'latin1'", "no-charset": "html_charset = ''", "headers": "headers = list('X-A' = '1', 'X-B' = '2')",
    "headers-twice": "headers = list('X-A' = '1', 'X-A' = '2')", "cache": "headers = list('Cache-Control' = 'max-age=1', ETag = '\"e\"', Vary = 'X', Expires = '0', 'Content-Location' = '/x', 'X-A' = '1')",
    "content-type": "headers = list('Content-Type' = 'text/x')", "encoding": "headers = list('Content-Encoding' = 'identity')", "lower-case": "headers = list('x-a' = '1', 'cache-control' = 'no-cache')", "validation": "validation = '\"X-Secret\" == \"s\"'",
    "no-index-falling": "indexhtml = FALSE, fallthrough = TRUE", "last-modified": "headers = list('Last-Modified' = 'never')", "connection": "headers = list(Connection = 'close')", "utf8-header": r"headers = list('X-A' = '\u00e9')",
}

OPTION_REQUESTS = {
    "html": ("GET /s/page.html HTTP/1.1", []), "index": ("GET /s/ HTTP/1.1", []), "text": ("GET /s/text.txt HTTP/1.1", []), "none": ("GET /s/none HTTP/1.1", []), "head": ("HEAD /s/page.html HTTP/1.1", []), "post": ("POST /s/page.html HTTP/1.1", ["Content-Length: 0"]),
    "not-modified": ("GET /s/page.html HTTP/1.1", [f"If-Modified-Since: {AFTER}"]), "secret": ("GET /s/page.html HTTP/1.1", ["x-secret: s"]), "gzip": ("GET /s/page.html HTTP/1.1", ["Accept-Encoding: gzip"]), "dots": ("GET /s/sub/../page.html HTTP/1.1", []),
    "folder": ("GET /s/noindex HTTP/1.1", []),
}

# Declarations with a path that shows them.
LAYOUTS = {
    "no-slash": ("list(a = DIR)", "/a/text.txt"), "slash-after": ("list(`a/` = DIR)", "/a/text.txt"), "slashes": ("list(`/2/` = DIR)", "/2/text.txt"), "chr": ("c(a = DIR)", "/a/text.txt"),
    "file": ("list(f = file.path(DIR, 'text.txt'))", "/f"), "file-below": ("list(f = file.path(DIR, 'text.txt'))", "/f/x"), "file-slash": ("list(f = file.path(DIR, 'text.txt'))", "/f/"), "file-html": ("list(`f.txt` = file.path(DIR, 'page.html'))", "/f.txt"),
    "two": ("list(a = DIR, b = file.path(DIR, 'sub'))", "/b/file.txt"), "nested": ("list(a = DIR, `a/x` = file.path(DIR, 'sub'))", "/a/x/file.txt"), "nested-miss": ("list(a = DIR, `a/sub` = file.path(DIR, 'noindex'))", "/a/sub/index.html"),
    "prefix-of-segment": ("list(a = DIR, `a/su` = excludeStaticPath())", "/a/sub/file.txt"), "exclude": ("list(a = DIR, `a/secret` = excludeStaticPath())", "/a/secret/file.txt"), "exclude-file": ("list(a = DIR, `a/text.txt` = excludeStaticPath())", "/a/text.txt"),
    "exclude-itself": ("list(a = DIR, `a/secret` = excludeStaticPath())", "/a/secret"), "exclude-inside": ("list(a = DIR, `a/sub` = excludeStaticPath(), `a/sub/deeper` = file.path(DIR, 'sub', 'deeper'))", "/a/sub/deeper/file.txt"),
    "exclude-slashes": ("list(a = DIR, `a/secret` = excludeStaticPath())", "/a//secret/file.txt"), "exclude-dot": ("list(a = DIR, `a/secret` = excludeStaticPath())", "/a/./secret/file.txt"), "exclude-encoded": ("list(a = DIR, `a/secret` = excludeStaticPath())", "/a/%73ecret/file.txt"),
    "exclude-nul": ("list(a = DIR, `a/text.txt` = excludeStaticPath())", "/a/text.txt%00"), "root": ("list(`/` = DIR)", "/text.txt"), "root-index": ("list(`/` = DIR)", "/"), "root-none": ("list(`/` = DIR)", "/none"),
    "root-and": ("list(`/` = DIR, `/sub` = excludeStaticPath())", "/sub/file.txt"), "utf8-key": (r"setNames(list(DIR), 'f\u00f6')", "/f%C3%B6/text.txt"), "space-key": ("list(`a b` = DIR)", "/a%20b/text.txt"), "percent-key": ("list(`a%20b` = DIR)", "/a%2520b/text.txt"),
    "dot-key": ("list(`a.b` = DIR)", "/a.b/text.txt"), "case-key": ("list(A = DIR)", "/a/text.txt"), "deep-key": ("list(`a/b/c` = DIR)", "/a/b/c/text.txt"), "same-twice": ("list(a = DIR, `/a` = file.path(DIR, 'sub'))", "/a/text.txt"),
    "empty-segment": ("list(`a//b` = DIR)", "/a//b/text.txt"),
}


def start(paths, options=None):
    """An app, whose server may not start: it is one that says so then."""
    extra = f", staticPathOptions = {options}" if options else ""
    return f"logged(staticPaths = {paths}{extra})"


def probes():
    """Paths, types, methods, conditions, options, layouts, changes."""
    for path in PATHS:
        name = path if len(path) < 50 else f"{path[:8]}x{len(path)}"
        yield exchange(f"static/path-{name}", request(f"GET {path} HTTP/1.1"), WHOLE)
        yield exchange(f"static/falling-{name}", request(f"GET {path} HTTP/1.1"), FALLING)
    for name in FILES:
        if "/" not in name and name.isascii() and " " not in name:
            yield exchange(f"static/type-{name}", request(f"GET /{name} HTTP/1.1"), ROOT)
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"):
        for kind, app in (("whole", WHOLE), ("falling", FALLING)):
            for path in ("text.txt", "none"):
                yield exchange(f"static/method-{method}-{kind}-{path}", request(f"{method} /s/{path} HTTP/1.1"), app, method)
    for kind, lines in CONDITIONS.items():
        for method in ("GET", "HEAD"):
            yield exchange(f"static/if-{kind}-{method}", request(f"{method} /s/text.txt HTTP/1.1", lines), WHOLE, method)
    for kind, lines in {"length-3": ["Content-Length: 3"], "chunked": ["Transfer-Encoding: chunked"]}.items():
        body = b"abc" if kind == "length-3" else b"3\r\nabc\r\n0\r\n\r\n"
        yield exchange(f"static/body-{kind}", request("GET /s/text.txt HTTP/1.1", lines, body), WHOLE)
        yield exchange(f"static/body-{kind}-falling", request("GET /s/text.txt HTTP/1.1", lines, body), FALLING)
    for kind, options in OPTIONS.items():
        for asked, (line, lines) in OPTION_REQUESTS.items():
            app = start(f"list(`/s` = staticPath(DIR{', ' if options else ''}{options}))")
            yield exchange(f"static/option-{kind}-{asked}", request(line, lines), app, line.split()[0])
    for kind, (paths, path) in LAYOUTS.items():
        if kind != "empty-segment":
            yield exchange(f"static/layout-{kind}", request(f"GET {path} HTTP/1.1"), start(paths))
    inherited = "staticPathOptions(headers = list('X-Server' = '1'), html_charset = 'latin1', fallthrough = TRUE)"
    for kind, paths in {"all": "list(s = DIR)", "own-headers": "list(s = staticPath(DIR, headers = list('X-Own' = '2')))", "no-headers": "list(s = staticPath(DIR, headers = list()))",
                        "no-charset": "list(s = staticPath(DIR, html_charset = ''))", "not-falling": "list(s = staticPath(DIR, fallthrough = FALSE))"}.items():
        for path in ("page.html", "none"):
            yield exchange(f"static/inherit-{kind}-{path}", request(f"GET /s/{path} HTTP/1.1"), start(paths, inherited))
    for line in ("GET /s/text.txt HTTP/1.0", "GET /s/none HTTP/1.0", "HEAD /s/none HTTP/1.1", "HEAD /s/text.txt HTTP/1.0"):
        yield exchange(f"static/line-{line}", request(line), WHOLE, line.split()[0])
    yield exchange("static/keep-alive-10", request("GET /s/text.txt HTTP/1.0", ["Connection: keep-alive"]), WHOLE)
    yield exchange("static/no-call", request("GET /other HTTP/1.1"), "list(staticPaths = list(`/s` = DIR))")
    yield exchange("static/on-headers", request("GET /s/text.txt HTTP/1.1"), "logged(onHeaders = function(req) ok('early'), staticPaths = list(`/s` = DIR))")
    yield exchange("static/pipe", request("GET /s/text.txt HTTP/1.1"), WHOLE, family="pipe")

    def changing(code, path):
        def script(wire):
            name = f"servers[['{wire.address[1]}']]"
            wire.side.ask(f"{{ s <- {name}; {code}; '' }}")
            wire.send(request(f"GET {path} HTTP/1.1"))
            wire.answer()
            wire.fate()
        return script

    for kind, code, path in (
        ("add", "s$setStaticPath(n = DIR)", "/n/text.txt"), ("remove", "s$removeStaticPath('/s')", "/s/text.txt"), ("option", "s$setStaticPathOption(headers = list('X-New' = '1'))", "/s/text.txt"),
        ("exclude", "s$setStaticPath(`s/text.txt` = excludeStaticPath())", "/s/text.txt"), ("replace", "s$setStaticPath(s = file.path(DIR, 'sub'))", "/s/file.txt"), ("falling", "s$setStaticPathOption(fallthrough = TRUE)", "/s/none"),
    ):
        # A server of its own, for it is changed.
        yield connection(f"static/change-{kind}", changing(code, path), f"identity(logged(staticPaths = list(`/s` = DIR)))  # {kind}\n")

    def busy(wire):
        wire.side.serve(WHOLE)
        wire.send(request("GET /busy HTTP/1.1"))
        time.sleep(0.15)
        other = Wire(wire.side, wire.address)
        other.send(request("GET /s/text.txt HTTP/1.1"))
        other.answer()
        wire.record["body"] += other.record["body"]
        other.close()
        wire.answer()

    yield connection("static/while-R-is-busy", busy, "logged(call = function(req) { Sys.sleep(0.6); ok('busy') }, staticPaths = list(`/s` = DIR))")
