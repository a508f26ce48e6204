#!/usr/bin/env python3
"""Prints the source files of this repository through which a GET request passes, with the instructions of each.

    bench/request_path.py [--workers] [--functions]

Serves an app that responds with `hello`, in an R process that serves by itself or, with --workers, by the program with one
worker. All processes run under callgrind, which counts the instructions of each source line, also of inlined functions. A
file belongs to the path if at least one of its instructions is executed for each of many requests on one connection.
--functions also prints the functions of each file. ROOKERY_LIB is the library with the R package (default .local/lib).
Its Rust code is linked once more, because the names of functions and lines are not installed.
"""

import argparse
import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from instructions import hello
from one_worker import LIBRARY, PATIENCE, answer, free_port

ROOT = Path(__file__).resolve().parent.parent
OWN = ("crates/", "libraries/", "r/src/")
REQUESTS = 1000
APP = "list(call = function(req) list(status = 200L, headers = list(), body = 'hello'))\n"


def with_names(library, folder):
    """Returns a copy of the library whose Rust code has names and lines, which are not installed."""
    installed = next((library / "rookery" / "libs" / "core").glob("librookery-*.so"), None)
    if not installed:
        raise SystemExit(f"there is no R package rookery in {library}; this command installs it: make install")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    build = ["cargo", "rustc", "--quiet", "--release", "--locked", "--package", "rookery-r", "--lib", "--crate-type", "cdylib",
             "--target-dir", target, "--config", "profile.release.package.rookery-r.strip=false",
             "--", "-C", f"link-arg=-Wl,-soname,{installed.name}"]
    subprocess.run(build, cwd=ROOT / "r" / "src" / "rust", check=True)
    shutil.copytree(library / "rookery", folder / "library" / "rookery", symlinks=True)
    shutil.copy(target / "release" / "librookery_r.so", folder / "library" / "rookery" / "libs" / "core" / installed.name)
    return folder / "library"


def command(library, folder, port, has_workers):
    """Returns the command that serves the app, and its environment."""
    app = folder / "app.R"
    app.write_text(APP)
    environment = os.environ | {"R_LIBS": f"{library / 'rookery' / 'compat'}:{library}", "ROOKERY_REQUEST_ID_HEADER": "no"}
    if has_workers:
        program = [library / "rookery" / "exec" / "rookery", "serve", app, "--port", str(port), "--log=none", "--workers", "1"]
        return program, environment
    code = f"app <- source('{app}')$value; httpuv::runServer('127.0.0.1', {port}, app)"
    return ["Rscript", "--no-environ", "-e", code], environment


def await_answer(process, port):
    """Waits until the server responds. Under callgrind, R needs half a minute to start."""
    until = time.monotonic() + 2 * PATIENCE
    while True:
        try:
            return answer(port)
        except OSError:
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit("the server does not respond under callgrind") from None
            time.sleep(0.5)


def dump(folder):
    """Makes callgrind write the counts of all processes since the last time, and returns the new files."""
    before = set(folder.glob("out.*"))
    subprocess.run(["callgrind_control", f"--vgdb-prefix={folder}/vgdb", "-d"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(3)
    return set(folder.glob("out.*")) - before


def counted(file):
    """Yields the object, the address and the instructions of each cost line in a file of callgrind."""
    objects, current, is_call = {}, None, False
    for line in file.read_text(errors="replace").splitlines():
        named = re.match(r"(c?ob)=\((\d+)\)(?: (.*))?", line)
        if named:
            if named[3]:
                objects[named[2]] = named[3]
            if named[1] == "ob":
                current = objects[named[2]]
        elif line.startswith("calls="):
            is_call = True
        elif line.startswith("0x"):
            if not is_call:
                address, _, cost = line.split()
                yield current, address, int(cost)
            is_call = False


def sources(library, addresses):
    """Returns the source files and functions of each address of a library, with those of all functions into which the instruction is inlined."""
    asked = "\n".join(addresses)
    told = subprocess.run(["addr2line", "-e", library, "-a", "-i", "-f", "-C"], input=asked, text=True, stdout=subprocess.PIPE, check=True).stdout
    found, lines = collections.defaultdict(set), iter(told.splitlines())
    for line in lines:
        if line.startswith("0x"):
            address = hex(int(line, 16))
        else:
            path = own(next(lines).rpartition(":")[0])
            if path:
                found[address].add((path, line))
    return found


def own(source):
    """Returns the path of a source file within this repository, or None if the file belongs to something else."""
    for start in OWN:
        at = source.find(start)
        if at >= 0 and "/.cargo/" not in source and "/rustc/" not in source and (ROOT / source[at:]).exists():
            return source[at:]
    return None


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--workers", action="store_true")
    asked.add_argument("--functions", action="store_true")
    asked = asked.parse_args()
    if not shutil.which("valgrind"):
        raise SystemExit("there is no valgrind; this command installs it: scripts/setup check")
    with tempfile.TemporaryDirectory(prefix="rookery-path-") as folder:
        folder, port = Path(folder), free_port()
        line, environment = command(with_names(LIBRARY, folder), folder, port, asked.workers)
        valgrind = ["valgrind", "--tool=callgrind", "--fair-sched=yes", "-q", "--trace-children=yes", "--dump-instr=yes", "--compress-pos=no",
                    f"--callgrind-out-file={folder}/out.%p", f"--vgdb-prefix={folder}/vgdb"]
        process = subprocess.Popen([*valgrind, *map(str, line)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            await_answer(process, port)
            ask = hello(port)
            for _ in range(20):
                ask()
            dump(folder)
            for _ in range(REQUESTS):
                ask()
            files = dump(folder)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        by_address = collections.defaultdict(collections.Counter)
        for file in files:
            for library, address, cost in counted(file):
                if library and library.startswith(str(folder)):
                    by_address[library][address] += cost
        costs, functions = collections.Counter(), collections.defaultdict(collections.Counter)
        for library, addresses in by_address.items():
            for address, found in sources(library, addresses).items():
                for path in {path for path, _ in found}:
                    costs[path] += addresses[address]
                for path, function in found:
                    functions[path][function] += addresses[address]
    if not costs:
        raise SystemExit("no instruction of this repository was executed: install the library again")
    path = sorted(name for name, cost in costs.items() if cost >= REQUESTS)
    for name in path:
        print(f"{costs[name] / REQUESTS:8.0f}  {name}")
        if asked.functions:
            for function, cost in functions[name].most_common():
                if cost >= REQUESTS:
                    print(f"{cost / REQUESTS:16.0f}  {function}")
    print(f"{len(path)} files")


if __name__ == "__main__":
    sys.exit(main())
