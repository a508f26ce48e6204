"""An ACME authority (RFC 8555) that records what it is asked for and issues nothing."""

import base64
import http.server
import json
import ssl
import threading


def _decoded(text):
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) or "{}")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, value, **headers):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Replay-Nonce", "bm9uY2U")
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.reply(200, {})

    def do_GET(self):
        base = self.server.owner.base
        self.reply(200, {
            "newNonce": f"{base}/nonce", "newAccount": f"{base}/account", "newOrder": f"{base}/order",
            "revokeCert": f"{base}/revoke", "keyChange": f"{base}/change",
            "meta": {"termsOfService": f"{base}/terms", "profiles": {"classic": "", "shortlived": ""}},
        })

    def do_POST(self):
        owner = self.server.owner
        jws = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        payload = _decoded(jws["payload"]) if jws["payload"] else {}
        path = self.path
        if path == "/account":
            owner.account = payload
            self.reply(201, {"status": "valid"}, Location=f"{owner.base}/account/1")
        elif path == "/order":
            owner.order = payload
            self.reply(201, self.order(payload), Location=f"{owner.base}/order/1")
        elif path == "/order/1":
            self.reply(200, self.order(owner.order))
        elif path == "/authorization":
            challenges = [{"type": kind, "url": f"{owner.base}/challenge/{kind}", "status": "pending", "token": "dG9rZW4"}
                          for kind in ("http-01", "tls-alpn-01", "dns-01")]
            self.reply(200, {"status": "pending", "identifier": owner.order["identifiers"][0], "challenges": challenges})
        elif path.startswith("/challenge/"):
            owner.challenge = path.removeprefix("/challenge/")
            self.reply(200, {"type": owner.challenge, "status": "processing", "url": f"{owner.base}{path}", "token": "dG9rZW4"})
        else:
            self.reply(404, {"type": "urn:ietf:params:acme:error:malformed", "detail": path})

    def order(self, payload):
        base = self.server.owner.base
        return {"status": "pending", "identifiers": payload["identifiers"], "authorizations": [f"{base}/authorization"],
                "finalize": f"{base}/finalize"}


class Authority:
    def __init__(self, certificate, key):
        self.account, self.order, self.challenge = {}, {}, None
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.server.owner = self
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.base = f"https://localhost:{self.server.server_port}"
        self.url = f"{self.base}/directory"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
