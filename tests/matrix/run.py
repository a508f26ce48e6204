#!/usr/bin/env python3
"""The matrix: behaviours in rows, and R's serve() in one process, `rookery serve` with one worker and with two in columns; and each setting, in one
of the places where it may be given: the command line, `_server.yml`, arguments and options of R, the environment.

    tests/matrix/run.py [--only GLOB] [--jobs N] [--everywhere] [--without]

ROOKERY_LIB is the library with the R package (default .local/lib). A setting of docs/settings.md that no case gives is a failure, and so is a kind
of value that no case gives in a place, and a case that does not give what it says, or gives the default. `--everywhere` runs each case in each place.
`--without` leaves the settings of each case out and expects the case to fail: one that passes observes no effect (ROOKERY_PATIENCE=15 makes that
shorter: most wait in vain). Exit status: 0 when everything passed.
"""

import argparse
import concurrent.futures
import fnmatch
import os
import signal
import sys
import time
import traceback

import behaviours
import cases
import certificates
import memory  # noqa: F401  (registers its rows, as does terminal)
import precedence  # noqa: F401  (registers its cases)
import settings_address  # noqa: F401  (registers its cases, as do the next three)
import settings_limits  # noqa: F401
import settings_requests  # noqa: F401
import settings_workers  # noqa: F401
import terminal  # noqa: F401
from server import LIBRARY, Failed
from table import ROWS

# Settings whose tests need what the cases here do not have, and where those tests are.
ELSEWHERE = {
    # serve() and the program never pass the headers on.
    "keep_identity_headers": "r/tests/testthat/test-identity-headers.R",
    # Its effect is on a terminal.
    "interactive": "tests/matrix/terminal.py",
    # They change what open pages and browsers get.
    "dev_anywhere": "crates/cli/src/serve/development.rs",
    "dev_hosts": "crates/cli/tests/it/reload/development.rs",
    "ignore": "crates/cli/tests/it/reload/development.rs",
    "error_pages": "crates/cli/tests/it/static_site.rs",
    "editor": "crates/cli/tests/it/reload/development.rs and tests/browser/development/pages.test.mjs",
    # A program in the browser's place is given the address.
    "open": "crates/cli/tests/it/startup_screen.rs and r/tests/testthat/test-start-screen.R",
}
# Cases that pass with `--without`, and why. Another case of the same setting observes its effect.
NOT_WITHOUT = {"host_may_be_a_name": "localhost is the address of the default; the case is there for its form"}


def uncovered(given):
    """Returns the settings that no case gives, and the kinds of values that no case gives in a form of a place; `given` are the cases."""
    wanted = set(ROWS) - set(ELSEWHERE)
    missing = wanted - {key for _, _, keys, _ in given for key in keys}
    kinds = set().union(*(cases.forms(wanted, place) for place in cases.PLACES)) - set().union(*(cases.forms(keys, place) for _, place, keys, _ in given))
    return sorted(missing | ELSEWHERE.keys() - ROWS.keys()) + [f"{kind} ({place}, {form})" for kind, place, form in kinds]


def attempt(function, argument, keys=(), without=False):
    began = time.monotonic()
    cases.OF_THIS_CASE.given, cases.OF_THIS_CASE.left_out = set(), set(keys) if without else set()
    try:
        skipped = function(argument)
        missing = set() if skipped or without else set(keys) - cases.OF_THIS_CASE.given
        if missing:
            return ("failed", f"it does not give {', '.join(sorted(missing))} a value of its own"), time.monotonic() - began
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
    parser.add_argument("--everywhere", action="store_true")
    parser.add_argument("--without", action="store_true")
    asked = parser.parse_args()
    os.environ["R_LIBS"] = str(LIBRARY)

    work = [(name, mode, (), function) for name, modes, function in behaviours.ROWS for mode in modes]
    given = list(cases.in_every_place() if asked.everywhere else cases.in_some_places())
    work += given
    work = [one for one in work if not asked.without or one[2] and one[0] not in NOT_WITHOUT]
    work = [one for one in work if fnmatch.fnmatch(f"{one[0]} ({one[1]})", asked.only)]
    results = {}
    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        running = {pool.submit(attempt, function, column, keys, asked.without): (name, column) for name, column, keys, function in work}
        for done in concurrent.futures.as_completed(running):
            name, column = running[done]
            (result, why), seconds = done.result()
            if asked.without and result != "skipped":
                result, why = {"failed": ("passed", ""), "passed": ("failed", "it passes without its settings")}[result]
            results[name, column] = (result, why, seconds)
            print(f"{result:8} {seconds:6.1f} s  {name} ({column})", flush=True)
    # Load from other cases may have been the reason; a second attempt has the machine to itself.
    for key in [key for key, value in results.items() if value[0] == "failed" and not asked.without][:8]:
        print(f"again, alone: {key[0]} ({key[1]}): {results[key][1]}", flush=True)
        keys, function = next((keys, function) for name, column, keys, function in work if (name, column) == key)
        (result, why), seconds = attempt(function, key[1], keys)
        results[key] = (result, why, seconds)
        print(f"{result:8} {seconds:6.1f} s  {key[0]} ({key[1]})", flush=True)
    certificates.remove_certificates()

    if not asked.without:
        missing = uncovered(given)
        results["every setting and kind of value is given", "all"] = ("failed" if missing else "passed", ", ".join(missing), 0.0)
    for (name, column), (result, why, _) in sorted(results.items()):
        if result != "passed":
            print(f"\n{result.upper()}: {name} ({column})\n    {why}")
    counts = {kind: sum(value[0] == kind for value in results.values()) for kind in ("passed", "failed", "skipped")}
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
