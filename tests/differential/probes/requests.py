"""Request lines: methods, targets, versions, line ends, segments."""

from probes.base import exchange, request

METHODS = ("GET HEAD POST PUT DELETE OPTIONS PATCH TRACE CONNECT PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK SEARCH BIND "
           "REBIND UNBIND ACL REPORT MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE PURGE MKCALENDAR LINK "
           "UNLINK QUERY FOO get Get").split()

TARGETS = [
    "/", "/a%20b?x=%20&y", "/x?", "/x?a?b", "//env", "/a/../env", "/a/./b", "/%2e%2e/x", "/%00", "/%zz", "/%", "/a;b=c",
    "/a#frag", "/a?b#frag", "/a%2Fb", "/a%C3%A9", "/a+b", "/a:b@c", "/~user/-_.!*'()", "/a|b", "/a^b", "/a{b}", "/a\"b",
    "/a<b>", "/a`b", "/static\\index.html", "/a[b]", "/?", "/??", "/=&", "/a//b//", "/%E2%82%AC", "*", "http://foo.com/env",
    "http://foo.com", "http://foo.com/env?x=1", "https://foo.com/a", "HTTP://foo.com/a", "http://u:p@foo.com:8/a",
    "env", "", "?x", "#x", "ftp://foo/a", "foo.com:80", "/a b", "/a\tb", "/\x7f", "/\x01",
    "/a?{\"b\": \"c\"}", "/a?{\"b\":[\"<c>\",1]}", "/a?x=\"<>{}|^`\\'[]y", "/a?<#>", "/a?\tb", "/a?\x7f",
]

VERSIONS = ["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/1.2", "HTTP/1.9", "HTTP/2.0", "HTTP/2", "HTTP/3.0", "HTTP/1", "HTTP/11.1",
            "http/1.1", "HTTP /1.1", "HTTX/1.1", "HTTP/1.1 ", "HTTP/1.10", ""]

RAW = {
    "bare-lf": b"GET /probe HTTP/1.1\nHost: probe.test\n\n",
    "mixed-ends": b"GET /probe HTTP/1.1\r\nHost: probe.test\n\r\n",
    "leading-crlf": b"\r\nGET /probe HTTP/1.1\r\nHost: probe.test\r\n\r\n",
    "leading-crlfs": b"\r\n\r\n\r\nGET /probe HTTP/1.1\r\nHost: probe.test\r\n\r\n",
    "leading-space": b" GET /probe HTTP/1.1\r\nHost: probe.test\r\n\r\n",
    "two-spaces": b"GET  /probe HTTP/1.1\r\nHost: probe.test\r\n\r\n",
    "tabs": b"GET\t/probe\tHTTP/1.1\r\nHost: probe.test\r\n\r\n",
    "bare-cr": b"GET /probe HTTP/1.1\rHost: probe.test\r\r",
    "no-host": b"GET /probe HTTP/1.1\r\n\r\n",
    "no-host-10": b"GET /probe HTTP/1.0\r\n\r\n",
    "no-version": b"GET /probe\r\n\r\n",
    "no-version-lf": b"GET /probe\n\n",
    "no-target": b"GET\r\n\r\n",
    "nonsense": b"\x16\x03\x01\x00\xa5\x01\x00\x00",
    "text": b"hello\r\n\r\n",
    "preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "utf8-target": "GET /\u00e9 HTTP/1.1\r\nHost: probe.test\r\n\r\n".encode(),
    "high-target": b"GET /\xff\xfe HTTP/1.1\r\nHost: probe.test\r\n\r\n",
    "nul-target": b"GET /a\0b HTTP/1.1\r\nHost: probe.test\r\n\r\n",
    "empty-lines": b"\r\n\r\n\r\n\r\n",
    "long-method": b"A" * 200 + b" / HTTP/1.1\r\nHost: probe.test\r\n\r\n",
}


def probes():
    """Each method, target and version, and lines that are none."""
    for method in METHODS:
        target = "foo.com:80" if method == "CONNECT" else "/probe"
        yield exchange(f"method/{method}", request(f"{method} {target} HTTP/1.1"), method=method)
    for target in TARGETS:
        method = "OPTIONS" if target == "*" else "GET"
        yield exchange(f"target/{target.encode('unicode_escape').decode()}", request(f"{method} {target} HTTP/1.1"))
    for version in VERSIONS:
        yield exchange(f"version/{version}", request(f"GET /probe {version}"))
    for kind, data in RAW.items():
        yield exchange(f"line/{kind}", data)
    for length in (1000, 8000, 60_000, 79_000):
        yield exchange(f"target-length/{length}", request(f"GET /{'a' * length} HTTP/1.1"))
        yield exchange(f"query-length/{length}", request(f"GET /?{'a' * length} HTTP/1.1"))
    whole = request("GET /split/path?query=1 HTTP/1.1", ["X-Split: a value"])
    for at in (1, 3, 4, 8, 10, 16, 20, 24, 27, 30, 32, 33, 37, 45, 50, 55, len(whole) - 3, len(whole) - 2, len(whole) - 1):
        yield exchange(f"split/at-{at}", whole, at=(at,))
    yield exchange("split/three", whole, at=(6, 20, 40))
    body = request("POST /split HTTP/1.1", ["Content-Length: 10"], b"0123456789")
    for back in (1, 5, 9, 10):
        yield exchange(f"split/body-{back}", body, method="POST", at=(len(body) - back,))
    yield exchange("split/body-and-head", body, method="POST", at=(20, len(body) - 5))
    yield exchange("loopback/ipv6", request(), family="tcp6")
    yield exchange("loopback/pipe", request(), family="pipe")
    yield exchange("loopback/pipe-post", body, method="POST", family="pipe")
