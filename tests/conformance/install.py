"""A Python of its own for Autobahn's cases, outside the repository: `python3 install.py` prints where it is.

The cases are Python 2. They and the WebSocket library they were written for are taken from the package index, pinned by
hash; suite/convert.py converts them, and suite/ plays them in place of the package's own program.

AUTOBAHN_HOME: the folder (default ~/.cache/rookery-conformance). PYTHON: the interpreter, 3.9 or later (default: this one).
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = ("setuptools<81", "wheel", "Twisted>=22.10", "txaio==2.1.0", "six>=1.16")
CASES, LIBRARY = "autobahntestsuite-25.10.1", "autobahn-0.10.9"
HASHES = {
    CASES: "b083d6e15330fc16f3e5f0975cce2b15f21bfa0c6db09547316b1852c6dbd6df",
    LIBRARY: "3fecc1e2a26a0421128ddcfb4e577f0bc669dd65d0e0fdad1c773965cbcef75a",
}
# What was installed is made of these.
SOURCES = ("install.py", "suite/convert.py", "suite/python2.py", "suite/selfcheck.py")
REMEDIES = {
    "venv": "install Python's venv (`make setup-conformance`; Debian: apt install python3-venv), or set PYTHON",
    "packages": "the package index has to be reachable (pip's PIP_INDEX_URL names another); once installed, none is needed",
    "conversion": "remove {home} and try again",
}


class InstallError(Exception):
    """What failed, the end of its output, and the remedy."""


def home() -> Path:
    return Path(os.environ.get("AUTOBAHN_HOME") or Path.home() / ".cache" / "rookery-conformance").absolute()


def command() -> list[str]:
    """The suite's program, to be run with `environment()`."""
    return [str(home() / "venv" / "bin" / "python"), "-m", "suite"]


def environment() -> dict[str, str]:
    return dict(os.environ, PYTHONPATH=f"{HERE}{os.pathsep}{home() / 'lib'}", PYTHONDONTWRITEBYTECODE="1")


def install() -> None:
    """Does nothing where it is up to date."""
    folder, stamp = home(), _stamp()
    if _installed(folder) == stamp:
        return
    folder.mkdir(parents=True, exist_ok=True)
    inside = subprocess.run(["git", "rev-parse", "--is-inside-work-tree"], cwd=folder, capture_output=True, check=False)
    if inside.returncode == 0:
        raise InstallError(f"{folder} is inside a git work tree; set AUTOBAHN_HOME to a folder that is not")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _installed(folder) != stamp:
            _install(folder)
            (folder / "stamp").write_text(stamp, encoding="utf-8")


def _stamp() -> str:
    return hashlib.sha256(b"".join((HERE / name).read_bytes() for name in SOURCES)).hexdigest()


def _installed(folder: Path) -> str:
    stamp = folder / "stamp"
    return stamp.read_text(encoding="utf-8") if stamp.is_file() else ""


def _install(folder: Path) -> None:
    # The folder may be any that AUTOBAHN_HOME names: only what is ours is removed.
    (folder / "stamp").unlink(missing_ok=True)
    for name in ("venv", "lib", "source"):
        shutil.rmtree(folder / name, ignore_errors=True)
    source, library = folder / "source", folder / "lib"
    source.mkdir()
    library.mkdir()

    _step("venv", [os.environ.get("PYTHON") or sys.executable, "-m", "venv", str(folder / "venv")])
    python = str(folder / "venv" / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-q"]
    _step("packages", [*pip, "install", *TOOLS])
    if subprocess.run([python, "-W", "ignore", "-c", "import lib2to3"], capture_output=True, check=False).returncode != 0:
        _step("packages", [*pip, "install", "fissix"])
    pinned = [f"{name.replace('-', '==')} --hash=sha256:{digest}\n" for name, digest in HASHES.items()]
    (source / "pinned.txt").write_text("".join(pinned), encoding="utf-8")
    flags = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--ignore-requires-python", "--require-hashes"]
    _step("packages", [*pip, "download", *flags, "-r", str(source / "pinned.txt"), "-d", str(source)])
    for name in HASHES:
        with tarfile.open(source / f"{name}.tar.gz") as archive:
            archive.extractall(source)
    shutil.copytree(source / LIBRARY / "autobahn", library / "autobahn")

    convert = [str(HERE / "suite" / "convert.py"), str(source / CASES / "autobahntestsuite")]
    _step("conversion", [python, *convert, str(library / "autobahntestsuite")])
    _step("conversion", [python, "-m", "suite.selfcheck"])


def _step(name: str, line: list[str]) -> None:
    print(f"conformance: {name}: {' '.join(line[:6])} ...", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)
        status, output = done.returncode, done.stdout + done.stderr
    except OSError as error:
        status, output = 127, str(error)
    if status != 0:
        tail = "\n".join(output.strip().splitlines()[-12:])
        remedy = REMEDIES[name].format(home=home())
        raise InstallError(f"{tail}\n`{' '.join(line)}` ended with status {status}; {remedy}")


if __name__ == "__main__":
    try:
        install()
    except InstallError as error:
        sys.exit(f"conformance: {error}")
    print(home())
