"""Request headers, as `req` holds them."""

from probes.base import exchange, request

HEADERS = {
    "none": [], "one": ["X-Foo: 1"], "lower": ["x-foo: 1"], "two-same": ["X-Foo: 1", "X-Foo: 2"],
    "three-cases": ["X-Foo: 1", "x-foo: 2", "X-FOO:"], "empty": ["Empty:"], "empty-first": ["X-Foo:", "X-Foo: 2"],
    "empty-between": ["X-Foo: 1", "X-Foo:", "X-Foo: 3"], "both-empty": ["X-Foo:", "X-Foo:"], "spaces": ["X-Foo:    v   "], "tabs": ["X-Foo:\tv\t"],
    "no-space": ["X-Foo:v"], "inner-spaces": ["X-Foo: a   b"], "space-only": ["X-Foo:   "],
    "mangled": ["X-A_B: u", "X-A-B: d"], "mangled-other-order": ["X-A-B: d", "X-A_B: u"], "order": ["Zebra: 1", "apple: 2", "Mango: 3", "_x: 4"],
    "digits": ["X-1: 1", "9: 9"], "symbols": ["X!#$%&'*+.^`|~: 1"], "underscore": ["_: 1"], "underscore-alone": ["X_User: eve"], "dash": ["-: 1"],
    "cookie": ["Cookie: a=1; b=2"], "two-cookies": ["Cookie: a=1", "Cookie: b=2"], "content-type": ["Content-Type: text/x; charset=utf-8"],
    "content-type-lower": ["content-type: a/b"], "content-length-0": ["Content-Length: 0"], "referer": ["Referer: http://x/y?z"],
    "user-agent": ["User-Agent: curl/1.0 (x; y)"], "accept": ["Accept: */*", "Accept: text/html"],
    "forwarded": ["X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https", "Forwarded: for=1.2.3.4"],
    "authorization": ["Authorization: Basic YTpi"], "quoted": ['X-Foo: "a, b", c'], "colon": ["X-Foo: a:b:c"], "equals": ["X-Foo: a=b"],
    "shiny": ["Shiny-Shared-Secret: s", "SHINY-FILE-NAME: x.txt"], "shiny-user": ['Shiny-Server-Credentials: {"user":"admin"}', "shiny_server_credentials: {}"], "proxy": ["Proxy: http://evil"],
    "connection-keep": ["Connection: keep-alive"], "connection-close": ["Connection: close"], "connection-case": ["Connection: Close"],
    "connection-list": ["Connection: foo, close"], "connection-two": ["Connection: keep-alive", "Connection: close"],
    "connection-unknown": ["Connection: foo"], "keep-alive": ["Keep-Alive: timeout=5"], "te": ["TE: trailers"],
    "upgrade-h2c": ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"],
    "upgrade-unknown": ["Connection: Upgrade", "Upgrade: foo"], "upgrade-alone": ["Upgrade: foo"],
    "upgrade-websocket-no-key": ["Connection: Upgrade", "Upgrade: websocket"],
    "method-override": ["X-HTTP-Method-Override: PUT"], "range": ["Range: bytes=0-1"], "date": ["Date: Tue, 14 Nov 2023 22:13:20 GMT"],
    "host-second": ["Host: other"], "host-same": ["Host: probe.test"],
    "if-none-match": ['If-None-Match: "x"'], "gzip": ["Accept-Encoding: gzip"], "name-256": ["X-" + "n" * 254 + ": v"], "name-9900": ["X-" + "n" * 9898 + ": v"],
    "utf8": ["X-Foo: \u00e9"], "value-1000": ["X-Foo: " + "v" * 1000], "value-60000": ["X-Foo: " + "v" * 60000], "value-80000": ["X-Foo: " + "v" * 80000],
    "many-100": [f"X-{i}: {i}" for i in range(100)], "many-500": [f"X-{i}: {i}" for i in range(500)], "many-same": ["X-Foo: 1"] * 100,
}

RAW = {
    "latin1": b"X-Foo: \xe9", "invalid-utf8": b"X-Foo: \xff\xfe", "folded": b"X-Foo: 1\r\n 2", "folded-tab": b"X-Foo: 1\r\n\t2",
    "folded-empty": b"X-Foo:\r\n 2", "no-colon": b"X-Foo", "space-before-colon": b"X-Foo : 1", "tab-before-colon": b"X-Foo\t: 1",
    "leading-space": b" X-Foo: 1", "empty-name": b": 1", "space-in-name": b"X Foo: 1", "paren-in-name": b"X(Foo): 1", "slash-in-name": b"X/Foo: 1",
    "high-name": b"X-\xe9: 1", "nul-value": b"X-Foo: a\0b", "control-value": b"X-Foo: a\x01b", "del-value": b"X-Foo: a\x7fb",
    "control-name": b"X-\x01: 1", "cr-value": b"X-Foo: a\rb", "bare-lf-end": b"X-Foo: 1\nX-Bar: 2", "value-90000": b"X-Foo: " + b"v" * 90000,
    "value-200000": b"X-Foo: " + b"v" * 200000, "name-long": b"X-" + b"n" * 10010 + b": 1", "host-empty": b"Host:",
    "vt-value": b"X-Foo: a\x0bb", "quoted-name": b'"X": 1', "comma-name": b"X,Y: 1", "at-name": b"X@Y: 1",
    "many-2001": b"\r\n".join(b"X-%d: 1" % i for i in range(2001)), "many-1900": b"\r\n".join(b"X-%d: 1" % i for i in range(1900)),
}

LENGTHS = {
    "two-equal": ["Content-Length: 3", "Content-Length: 3"], "two-different": ["Content-Length: 3", "Content-Length: 4"],
    "list": ["Content-Length: 3, 3"], "plus": ["Content-Length: +3"], "minus": ["Content-Length: -3"], "hex": ["Content-Length: 0x3"],
    "text": ["Content-Length: three"], "empty": ["Content-Length:"], "zeros": ["Content-Length: 003"], "spaces": ["Content-Length:   3  "],
    "inner-space": ["Content-Length: 3 3"], "huge": ["Content-Length: 99999999999999999999999"],
    "and-chunked": ["Content-Length: 3", "Transfer-Encoding: chunked"], "chunked-and": ["Transfer-Encoding: chunked", "Content-Length: 3"],
    "decimal": ["Content-Length: 3.0"],
}

ENCODINGS = {
    "chunked-case": "Chunked", "identity": "identity", "gzip": "gzip", "gzip-chunked": "gzip, chunked", "chunked-gzip": "chunked, gzip",
    "chunked-twice": "chunked, chunked", "unknown": "foo", "empty": "", "quoted": '"chunked"', "parameter": "chunked;x=1",
}


def probes():
    """Good headers, bad headers, and those that say how long the body is."""
    for kind, lines in HEADERS.items():
        yield exchange(f"header/{kind}", request(headers=lines))
    yield exchange("header/none-at-all", b"GET /probe HTTP/1.0\r\n\r\n")
    for kind, line in RAW.items():
        yield exchange(f"header-bytes/{kind}", request(headers=[line]), apart=kind == "name-long")
    for kind, lines in LENGTHS.items():
        body = b"3\r\nabc\r\n0\r\n\r\n" if "chunked" in kind else b"abc"
        yield exchange(f"length/{kind}", request("POST /probe HTTP/1.1", lines, body), method="POST")
    for kind, value in ENCODINGS.items():
        yield exchange(f"encoding/{kind}", request("POST /probe HTTP/1.1", [f"Transfer-Encoding: {value}"], b"3\r\nabc\r\n0\r\n\r\n"), method="POST")
