"""A certificate authority of the test's own, and servers that use its certificates."""

import shutil
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path

from cases import started


class Certificates:
    """A certificate authority of the test's own, made with openssl."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="rookery-matrix-"))
        self.make("ca", "/CN=matrix authority", ["-x509", "-addext", "basicConstraints=critical,CA:TRUE",
                                                  "-addext", "keyUsage=critical,keyCertSign,cRLSign"])
        for name in ("server", "client"):
            self.make(name, f"/CN={name}", ["-x509", "-CA", self / "ca.pem", "-CAkey", self / "ca.key", "-addext",
                                            "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"])

    def __truediv__(self, name):
        return str(self.folder / name)

    def make(self, name, subject, words):
        key = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self / f"{name}.key"]
        request = ["openssl", "req", "-new", "-key", self / f"{name}.key", "-subj", subject, "-out", self / f"{name}.pem", "-days", "30"]
        for command in (key, request + words):
            subprocess.run(command, check=True, capture_output=True)

    def trusted(self, certificate=None, latest=None, protocols=None):
        context = ssl.create_default_context(cafile=self / "ca.pem")
        if certificate:
            context.load_cert_chain(self / f"{certificate}.pem", self / f"{certificate}.key")
        if latest:
            context.maximum_version = latest
        if protocols:
            context.set_alpn_protocols(protocols)
        return context

    def settings(self, **more):
        return {"tls_cert": self / "server.pem", "tls_key": self / "server.key"} | more


_certificates = []
_certificates_lock = threading.Lock()


def certificates():
    with _certificates_lock:
        if not _certificates:
            _certificates.append(Certificates())
        return _certificates[0]


def remove_certificates():
    for made in _certificates:
        shutil.rmtree(made.folder, ignore_errors=True)


def over_tls(place, settings=None, **rest):
    made = certificates()
    server = started(place, made.settings(**(settings or {})), **rest)
    server.tls = made.trusted()
    return server
