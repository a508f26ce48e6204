"""The settings of the address and of HTTPS."""

import shutil
import socket
import ssl
import tempfile
from pathlib import Path

import authority
from cases import case, started
from certificates import certificates, over_tls
from server import Failed, check, equal, free_port, until


@case("host")
def host_is_the_address_that_is_listened_on(place):
    with started(place, {"host": "127.0.0.3"}, start=False) as server:
        server.host = "127.0.0.3"
        until("it serves", lambda: server.get("/").status == 200)
        try:
            socket.create_connection(("127.0.0.1", server.port), 5).close()
            raise Failed("it is reached by another address as well")
        except ConnectionRefusedError:
            pass


@case("host")
def host_may_be_a_name(place):
    with started(place, {"host": "localhost"}) as server:
        equal(server.get("/").status, 200, "the request")


@case("host")
def host_may_be_a_unix_socket(place):
    path = Path(tempfile.mkdtemp(prefix="rookery-matrix-")) / "socket"
    try:
        with started(place, {"host": f"unix:{path}"}, port=0, start=False) as server:
            until("it serves", lambda: path.exists() and server.get("/", unix=path).status == 200)
    finally:
        shutil.rmtree(path.parent)


@case("port")
def port_is_the_port_that_is_listened_on(place):
    port = free_port()
    with started(place, {"port": port}, start=False) as server:
        server.port = port
        until("it serves", lambda: server.get("/").status == 200)


@case("tls_cert", "tls_key")
def a_certificate_and_its_key_make_it_https(place):
    with over_tls(place) as server:
        equal(server.get("/").status, 200, "the request over TLS")


@case("tls")
def tls_dev_makes_a_certificate_for_localhost(place):
    with started(place, {"tls": "dev"}) as server:
        server.tls = ssl._create_unverified_context()
        equal(server.get("/").status, 200, "the request over TLS")


@case("tls_client_ca", "tls_client_auth")
def certificates_of_clients_are_required_or_optional(place):
    made = certificates()
    with over_tls(place, {"tls_client_ca": made / "ca.pem"}) as server:
        try:
            server.get("/")
            raise Failed("a client without a certificate is served")
        except (ssl.SSLError, ConnectionResetError):
            pass
        server.tls = made.trusted("client")
        check("TLS_CLIENT_SUBJECT=CN=client" in server.get("/seen").text, "the app does not see the client's certificate")
    with over_tls(place, {"tls_client_ca": made / "ca.pem", "tls_client_auth": "optional"}) as server:
        equal(server.get("/").status, 200, "a client without a certificate")


@case("tls_min_version")
def tls_min_version_refuses_older_versions(place):
    with over_tls(place, {"tls_min_version": "1.3"}) as server:
        equal(server.get("/").status, 200, "TLS 1.3")
        server.tls = certificates().trusted(latest=ssl.TLSVersion.TLSv1_2)
        try:
            server.get("/")
            raise Failed("TLS 1.2 is spoken")
        except (ssl.SSLError, ConnectionResetError):
            pass


@case("http2")
def no_http2_offers_http_1_1_only(place):
    for settings, expected in (({}, "h2"), ({"http2": False}, "http/1.1")):
        with over_tls(place, settings) as server:
            server.tls = certificates().trusted(protocols=["h2", "http/1.1"])
            with server.connect() as client:
                equal(client.selected_alpn_protocol(), expected, "the protocol")


@case("hsts")
def hsts_is_sent_over_https(place):
    with over_tls(place, {"hsts": 300}) as server:
        equal(server.get("/").header("Strict-Transport-Security"), "max-age=300", "the header")


@case("redirect_from")
def redirect_from_sends_plain_requests_to_https(place):
    port = free_port()
    with over_tls(place, {"redirect_from": port}) as server:
        reply = server.get("/a?b=c", port=port, headers={"Host": f"localhost:{port}"})
        equal((reply.status, reply.header("Location")), (308, f"https://localhost:{server.port}/a?b=c"), "the redirect")


@case("domain", "agree_tos", "email", "acme_directory", "acme_ca", "acme_profile", "acme_dir")
def the_settings_of_acme_reach_the_authority(place):
    made = certificates()
    with authority.Authority(made / "server.pem", made / "server.key") as issuer, tempfile.TemporaryDirectory() as kept:
        settings = {
            "domain": "matrix.example.org", "agree_tos": True, "email": "ops@example.org", "acme_directory": issuer.url,
            "acme_ca": made / "ca.pem", "acme_profile": "shortlived", "acme_dir": kept, "redirect_from": free_port(),
        }
        with started(place, settings, start=False):
            until("the authority is asked to look at a challenge", lambda: issuer.challenge)
            check(any(Path(kept).rglob("*")), "nothing is kept in acme_dir")
    equal(issuer.account.get("contact"), ["mailto:ops@example.org"], "the contact")
    equal(issuer.account.get("termsOfServiceAgreed"), True, "the agreement")
    equal(issuer.order.get("identifiers"), [{"type": "dns", "value": "matrix.example.org"}], "the names")
    equal(issuer.order.get("profile"), "shortlived", "the profile")
