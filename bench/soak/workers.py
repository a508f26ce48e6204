#!/usr/bin/env python3
"""Tests several R processes behind one address under failures. Each row of its table counts results at the client.

    python3 bench/soak/workers.py short|long [row ...]       default: all rows

`make soak` runs the long form, and `make nightly` the short one. A row that cannot run on this machine names the reason.
Exit status: 0 on success; 1 if a row fails; 2 for wrong arguments.
"""

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner import machine  # noqa: E402
from soak.fleet import Skipped  # noqa: E402
from soak.rows import churn, crowds, disks, ends, kills, memory, only, pauses, starts  # noqa: E402

ROWS = {
    row.__name__: row
    for row in (
        kills.kills, only.only, pauses.pauses, memory.memory, memory.oom, memory.idle_tls, starts.starts, starts.loops, starts.broken,
        ends.ends, ends.twice, ends.murder, crowds.crowds, churn.churn, disks.spool, disks.log,
    )
}  # fmt: skip


def main() -> int:
    form, *names = sys.argv[1:] or [""]
    if form not in ("short", "long") or set(names) - set(ROWS):
        print(f"usage: workers.py short|long [row ...]; rows: {' '.join(ROWS)}", file=sys.stderr)
        return 2
    # SIGTERM raises an exception, so that no server outlives the program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # nohup makes its program ignore SIGHUP, and all children inherit that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    machine.raise_descriptor_limit()
    status = 0
    for name in names or ROWS:
        print(f"-- {name}", flush=True)
        began = time.monotonic()
        try:
            found = ROWS[name](form == "long")
        except Skipped as reason:
            print(f"{name}: SKIPPED: {reason}", flush=True)
            continue
        except RuntimeError as error:
            found = [str(error)]
        for each in found:
            print(f"FAILED: {each}")
        print(f"{name}: {'FAILED' if found else 'passed'} in {time.monotonic() - began:.0f} s", flush=True)
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main())
