#!/usr/bin/env python3
"""Tests the website that `make site` builds.

    tests/site/run.py [commands|links|browser ...] [--only PAGE]      default: all

commands runs every command shown in the articles, the vignettes, the manual and the front page (see commands.py). With root's
rights they run in a network namespace that has only the loopback device, so that the ports that the pages name are free. links
checks that every link within the website leads to a page, and its anchor to an element. browser looks at the pages in Chromium.

ROOKERY_LIB is the library with the R package (default .local/lib), SITE the website (default .local/site). Exit status: 0 all
passed; 1 not.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from commands import ROOT, Failed, Page, blocks_of
from links import check_links

SITE = Path(os.environ.get("SITE", ROOT / ".local" / "site")).resolve()
INSIDE = "ROOKERY_SITE_INSIDE"


def sources() -> list[Path]:
    """Returns the files that the pages of the website are made from. Those of the changelog and of contributing.html describe
    work in a clone, and `make check` and `make test` are these commands."""
    articles = sorted((ROOT / "site").glob("*.md")) + sorted((ROOT / "site" / "articles").glob("*.Rmd"))
    return articles + sorted((ROOT / "r" / "vignettes").glob("*.Rmd")) + sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "libraries").glob("*/DESIGN.md"))


def in_own_network() -> bool:
    """Starts this program again in a network of its own, if that is possible. Returns whether it has run there."""
    if os.environ.get(INSIDE) or not shutil.which("unshare"):
        return False
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        print("site: without root's rights the commands use the ports of this machine")
        return False
    again = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", sys.executable, *sys.argv]
    sys.exit(subprocess.run(again, env=os.environ | {INSIDE: "1"}, check=False).returncode)


def commands(only: str | None) -> bool:
    failed = False
    for source in sources():
        name = str(source.relative_to(ROOT))
        if only and only not in name:
            continue
        blocks = blocks_of(source)
        if not blocks:
            continue
        try:
            counts = Page(blocks).run()
        except Failed as reason:
            failed = True
            print(f"FAILED {reason}", flush=True)
        else:
            print(f"passed {name}: {', '.join(f'{count} {kind}' for kind, count in sorted(counts.items()))}", flush=True)
    return not failed


def browser() -> bool:
    if not (ROOT / "tests" / "browser" / "node_modules" / "playwright-core").is_dir():
        print("FAILED the packages of the browser tests are missing: make setup-test", flush=True)
        return False
    test = ROOT / "tests" / "site" / "site.test.mjs"
    return subprocess.run(["node", "--test", test], env=os.environ | {"SITE": str(SITE)}, check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["commands", "links", "browser", []], help="default: all")
    parser.add_argument("--only", help="commands: only the pages whose file names contain this")
    asked = parser.parse_args()
    parts = asked.parts or ["commands", "links", "browser"]
    if "commands" in parts:
        in_own_network()
    passed = {}
    for part in parts:
        print(f"== site: {part}", flush=True)
        passed[part] = {"commands": lambda: commands(asked.only), "links": lambda: check_links(SITE), "browser": browser}[part]()
    print(", ".join(f"{part}: {'passed' if ok else 'FAILED'}" for part, ok in passed.items()))
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
