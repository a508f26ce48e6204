#!/usr/bin/env python3
"""Our server under sslscan and testssl: nothing of MEDIUM or above is found but what ACCEPTED names, with its reason.

Without the programs nothing is played, which is said; `make conformance` installs them. Environment: CARGO_FLAGS (other than --release).
Exit status: 0 as expected, or they are not here; 1 not.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import run

# Seconds for all of a program's tests: testssl takes two minutes on a machine that is idle.
ALL_S = 1200
GRAVE = ("MEDIUM", "HIGH", "CRITICAL")
# What testssl finds, and why it stays so.
ACCEPTED = {
    "cert_chain_of_trust": "the certificate is the one to develop with, which nobody has signed",
    "cert_revocation": "the same: who signs nothing revokes nothing",
    "security_headers": "Content-Security-Policy and its like say what a page may do, which its application knows and a server does not",
    "BREACH": "the reply is compressed. The attack needs a page that has a stranger's text and a secret in it, so it is a page's to leave out of "
    "compression (a Content-Encoding of its own: docs/SECURITY-MODEL.md); httpuv, Caddy's `encode` and Debian's nginx compress over TLS as well",
}
# Suites that are sound: forward secrecy and AEAD, what rustls has.
SUITE = re.compile(r"TLS_(AES_256_GCM_SHA384|AES_128_GCM_SHA256|CHACHA20_POLY1305_SHA256)|ECDHE-ECDSA-(AES(256|128)-GCM-SHA(384|256)|CHACHA20-POLY1305)")


def main() -> int:
    missing = [name for name in ("sslscan", "testssl") if shutil.which(name) is None]
    if missing:
        print(f"scanners: NOT PLAYED: there is no {' and no '.join(missing)}; `make conformance` installs them")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        server = run.example("https_server", package="rookery-server")
        with run.serving([server, "127.0.0.1:0", folder]) as address:
            port = address.rpartition(":")[2]
            complaints = sslscan(port) + testssl(port, Path(folder) / "found.json")
    for complaint in complaints:
        print(f"scanners: {complaint}")
    print(f"scanners: {len(complaints)} not as expected")
    return int(bool(complaints))


def sslscan(port: str) -> list[str]:
    said = ended(["sslscan", "--no-colour", f"localhost:{port}"])
    versions = dict(re.findall(r"^(SSLv\d|TLSv1\.\d)\s+(enabled|disabled)$", said, re.MULTILINE))
    wanted = {"SSLv2": "disabled", "SSLv3": "disabled", "TLSv1.0": "disabled", "TLSv1.1": "disabled", "TLSv1.2": "enabled", "TLSv1.3": "enabled"}
    wrong = [f"sslscan: {name} is {versions.get(name, 'not told of')}" for name, state in wanted.items() if versions.get(name) != state]
    suites = re.findall(r"^(?:Preferred|Accepted)\s+\S+\s+\d+ bits\s+(\S+)", said, re.MULTILINE)
    wrong += [f"sslscan: {suite} is accepted" for suite in suites if not SUITE.fullmatch(suite)]
    if len(suites) < 6:
        wrong.append(f"sslscan: {len(suites)} suites, where there are six")
    if "Session renegotiation not supported" not in said:
        wrong.append("sslscan: sessions can be renegotiated")
    return wrong


def testssl(port: str, report: Path) -> list[str]:
    ended(["testssl", "--quiet", "--color", "0", "--warnings", "off", "--severity", "LOW", "--jsonfile", str(report), f"localhost:{port}"])
    found = json.loads(report.read_text(encoding="utf-8"))
    grave = {each["id"]: each for each in found if each["severity"] in GRAVE}
    for name, reason in ACCEPTED.items():
        if name in grave:
            print(f"scanners: testssl: {name}: {grave[name]['finding']}: accepted: {reason}")
    # A scan that found no fault with a certificate that nobody has signed did not take place.
    wrong = [] if "cert_chain_of_trust" in grave else ["testssl: the certificate was not looked at"]
    problems = [each for each in found if each["id"] == "scanProblem" or each["severity"] in ("FATAL", "WARN") and each["id"] != "engine_problem"]
    wrong += [f"testssl: {each['id']}: {each['finding']}" for each in problems]
    return wrong + [f"testssl: {name}: {each['severity']}: {each['finding']}" for name, each in grave.items() if name not in ACCEPTED]


def ended(line: list[str]) -> str:
    try:
        # The status is the worst finding's.
        return subprocess.run(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=ALL_S, check=False).stdout
    except subprocess.TimeoutExpired:
        raise run.RunError(f"{line[0]} did not end within {ALL_S} s") from None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except run.RunError as error:
        print(f"scanners: {error}", file=sys.stderr)
        sys.exit(1)
