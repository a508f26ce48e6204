#!/usr/bin/env python3
"""The matrix: behaviours in rows, and one R process, one worker and two workers in columns; and each setting, wherever it can be given.

    tests/matrix/run.py [--only GLOB] [--jobs N]

ROOKERY_LIB is the library with the R package (default .local/lib). A key that the program's help, R or `_server.yml` knows and that no case
sets is a failure. Exit status: 0 when everything passed.
"""

import argparse
import concurrent.futures
import fnmatch
import os
import re
import signal
import subprocess
import sys
import time
import traceback

import behaviours
import cases
import certificates
import settings_address  # noqa: F401  (registers its cases, as do the next three)
import settings_limits  # noqa: F401
import settings_requests  # noqa: F401
import settings_workers  # noqa: F401
from server import LIBRARY, PROGRAM, Failed

# Words of the program that are no settings of a server.
NO_SETTINGS = {"help", "version", "limit"}

# What R calls otherwise than the command line.
IN_R = {
    "cert": "tls_cert", "key": "tls_key", "client_ca": "tls_client_ca", "client_auth": "tls_client_auth",
    "min_version": "tls_min_version", "http2": "no_http2", "http2_websockets": "no_http2_websockets", "domains": "domain",
    "staging": "acme_staging", "directory": "acme_directory", "ca": "acme_ca", "profile": "acme_profile",
    "challenge": "acme_challenge", "dir": "acme_dir",
}
# Not settings of their own: groups of settings, objects, and what only an object of R can be (test-tls.R has passwords).
NOT_IN_R = {"acme", "...", "target", "limits", "password"}


def known_keys():
    """The keys that the program and R know, as the cases call them."""
    text = subprocess.run([str(PROGRAM), "serve", "--help"], capture_output=True, text=True, check=True).stdout
    keys = {name.replace("-", "_") for name in re.findall(r"^\s+(?:-\w, )?--([a-z0-9-]+)", text, re.M)} - NO_SETTINGS
    script = (
        "library(rookery); cat(unlist(lapply(list(tls_config, acme, workers_config, serve), function(f) names(formals(f)))), sep = '\\n');"
        "cat('\\n'); cat(paste('limit', rookery:::limit_table()$name), sep = '\\n'); cat('\\n'); cat(rookery:::setting_names, sep = '\\n')"
    )
    found = subprocess.run(["Rscript", "--vanilla", "-e", script], capture_output=True, text=True, check=True, env=None).stdout
    names = {line for line in found.splitlines() if line} - NOT_IN_R
    return keys | {IN_R.get(name, name) for name in names}


def uncovered():
    covered = {key for _, _, keys, _ in cases.CASES for key in keys}
    return sorted(known_keys() - covered)


def attempt(function, argument):
    began = time.monotonic()
    try:
        skipped = function(argument)
        return ("skipped", skipped) if skipped else ("passed", ""), time.monotonic() - began
    except Failed as error:
        return ("failed", str(error)), time.monotonic() - began
    except Exception:  # a fault of the case itself
        return ("failed", traceback.format_exc(limit=4)), time.monotonic() - began


def main():
    # What `nohup` starts ignores SIGHUP, and so would every server of the cases.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--jobs", type=int, default=4)
    asked = parser.parse_args()
    os.environ["R_LIBS"] = str(LIBRARY)

    work = [(name, mode, function) for name, modes, function in behaviours.ROWS for mode in modes]
    work += [(name, place, function) for name, place, _, function in cases.CASES]
    work = [one for one in work if fnmatch.fnmatch(f"{one[0]} ({one[1]})", asked.only)]
    results = {}
    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        running = {pool.submit(attempt, function, column): (name, column) for name, column, function in work}
        for done in concurrent.futures.as_completed(running):
            name, column = running[done]
            (result, why), seconds = done.result()
            # Load from other cases may have been the reason; a second attempt has the machine to itself.
            results[name, column] = (result, why, seconds)
            print(f"{result:8} {seconds:6.1f} s  {name} ({column})", flush=True)
    for key in [key for key, value in results.items() if value[0] == "failed"][:8]:
        print(f"again, alone: {key[0]} ({key[1]}): {results[key][1]}", flush=True)
        function = next(function for name, column, function in work if (name, column) == key)
        (result, why), seconds = attempt(function, key[1])
        results[key] = (result, why, seconds)
        print(f"{result:8} {seconds:6.1f} s  {key[0]} ({key[1]})", flush=True)
    certificates.remove_certificates()

    if asked.only == "*":
        missing = uncovered()
        results["every key is set by a case", "all"] = ("failed" if missing else "passed", ", ".join(missing), 0.0)
    for (name, column), (result, why, _) in sorted(results.items()):
        if result != "passed":
            print(f"\n{result.upper()}: {name} ({column})\n    {why}")
    counts = {kind: sum(value[0] == kind for value in results.values()) for kind in ("passed", "failed", "skipped")}
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
