#!/usr/bin/env python3
"""Our server under h2spec's cases for HTTP/2, the strict ones included: all of them have to pass but those of BEYOND_SETTINGS.

h2spec is built by Go, of the module that h2spec/go.mod pins, into .local/h2spec; H2SPEC names another program. Without Go nothing
is played, which is said. Environment: CARGO_FLAGS (other than --release). Exit status: 0 all passed, or there is no Go; 1 not.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import run

HERE = Path(__file__).resolve().parent
# Seconds that h2spec waits for what should come, and for all of it.
EACH_S, ALL_S = 5, 600
# What the pinned version has. Fewer were not all of them.
CASES = 146
# The classes of the cases in which h2spec, which does not look at our SETTINGS_HEADER_TABLE_SIZE of 0, makes the dynamic table larger. We end
# the connection (RFC 9113, 4.3.1, and RFC 7541, 6.3).
BEYOND_SETTINGS = {"Sends a dynamic table size update", "Sends multiple dynamic table size update"}


def main() -> int:
    program = os.environ.get("H2SPEC") or build()
    if program is None:
        print("h2spec: NOT PLAYED: there is no Go to build it with; install Go, or name the program in H2SPEC")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        server = run.example("https_server", package="rookery-server")
        with run.serving([server, "127.0.0.1:0", folder]) as address:
            return play(program, address.rpartition(":")[2], Path(folder) / "report.xml")


def build() -> str | None:
    """The path of h2spec; `None` without Go."""
    if shutil.which("go") is None:
        return None
    out = run.ROOT / ".local" / "h2spec" / "h2spec"
    line = ["go", "build", "-o", str(out), "github.com/summerwind/h2spec/cmd/h2spec"]
    done = subprocess.run(line, cwd=HERE / "h2spec", check=False)
    if done.returncode != 0:
        raise run.RunError(f"`{' '.join(line)}` failed; Go's module proxy (GOPROXY) has to be reachable")
    return str(out)


def play(program: str, port: str, report: Path) -> int:
    line = [program, "--tls", "--insecure", "--strict", "--port", port, "--timeout", str(EACH_S), "--junit-report", str(report)]
    try:
        done = subprocess.run(line, stdout=subprocess.PIPE, text=True, timeout=ALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise run.RunError(f"h2spec did not end within {ALL_S} s") from None
    if not report.is_file():
        raise run.RunError(f"{done.stdout[-2000:]}\nh2spec ended with status {done.returncode} and no report")
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    refused = {case.get("classname") for case in failed} & BEYOND_SETTINGS
    failed = [case for case in failed if case.get("classname") not in refused]
    for case in failed:
        text = " ".join("".join(case.itertext()).split())
        print(f"h2spec: {case.get('package')} {case.get('classname')}: {text}")
    print(f"h2spec: {len(cases)} cases, {len(failed)} failed, {len(skipped)} skipped, {len(refused)} beyond our settings")
    if refused != BEYOND_SETTINGS:
        print(f"h2spec: {sorted(BEYOND_SETTINGS - refused)} were expected to be refused")
    if len(cases) < CASES:
        print(f"h2spec: {CASES} were expected")
    # The status 1 says that cases have failed: those that were refused.
    return int(bool(failed) or bool(skipped) or refused != BEYOND_SETTINGS or len(cases) < CASES or done.returncode != 1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except run.RunError as error:
        print(f"h2spec: {error}", file=sys.stderr)
        sys.exit(1)
