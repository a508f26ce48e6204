"""What the scripts of this folder share: the version and date of a release, and archives that are the same bytes each time."""

import gzip
import importlib.util
import io
import os
import re
import shlex
import subprocess
import tarfile
import zipfile
from datetime import UTC, datetime
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
# Where scripts/setup installs zig and rustup, and scripts/crates what it needs.
TOOLS = (
    Path(os.environ.get("ZIG_VENV", ROOT / ".local" / "zig")) / "bin",
    ROOT / ".local" / "tools" / "bin",
    Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin",
)


class Failed(Exception):
    """An error whose message says what is wrong and what the remedy is."""


def run(words, **options) -> str:
    """Runs a command and returns its standard output. A command that fails raises `Failed` with its messages."""
    words = [str(word) for word in words]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **options)
    except FileNotFoundError as missing:
        raise Failed(f"{missing.filename} is missing; packaging/README.md says what each artefact needs") from None
    if done.returncode != 0:
        raise Failed(f"`{shlex.join(words)}` ended with status {done.returncode}:\n{(done.stdout + done.stderr).strip()[-4000:]}")
    return done.stdout


def use_tools() -> None:
    """Makes this process and its children find the tools that this repository's scripts have installed."""
    os.environ["PATH"] = os.pathsep.join([*map(str, TOOLS), os.environ["PATH"]])


def load(script: Path) -> ModuleType:
    """Returns the functions of a script whose name does not end in .py."""
    loader = SourceFileLoader(script.name, str(script))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(script.name, loader))
    loader.exec_module(module)
    return module


def version(tree: Path = ROOT) -> str:
    """Returns the version of the workspace, which is that of every artefact."""
    found = re.search(r'^\[workspace\.package\]\nversion = "([^"]+)"', (tree / "Cargo.toml").read_text(), re.M)
    if not found:
        raise Failed(f"{tree / 'Cargo.toml'} has no version in [workspace.package]")
    return found[1]


def epoch(tree: Path = ROOT) -> int:
    """Returns the date of all files in the artefacts: SOURCE_DATE_EPOCH, or else that of the last commit."""
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    return int(stated or run(["git", "-C", tree, "log", "-1", "--format=%ct"]))


def target_folder(tree: Path = ROOT) -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", tree / "target")).resolve()


class File:
    """A file of an archive. Its only attributes are its bytes and whether it is a program."""

    def __init__(self, content: bytes | str | Path, is_program: bool = False) -> None:
        if isinstance(content, Path):
            content = content.read_bytes()
        self.content = content.encode() if isinstance(content, str) else content
        self.mode = 0o755 if is_program else 0o644


def tar_gz(path: Path, files: dict[str, File], date: int) -> None:
    """Writes a tar archive whose bytes depend only on the files and the date."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, file in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(file.content), file.mode, date
            entry.uname = entry.gname = "root"
            archive.addfile(entry, io.BytesIO(file.content))
    with path.open("wb") as out, gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=date) as packed:
        packed.write(buffer.getvalue())


def zip_file(path: Path, files: dict[str, File], date: int) -> None:
    """Writes a zip archive whose bytes depend only on the files and the date, in the order of `files`."""
    # The format has no dates before 1980, and counts in steps of two seconds.
    moment = datetime.fromtimestamp(max(date, 315532800), UTC).timetuple()[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, file in files.items():
            entry = zipfile.ZipInfo(name, moment)
            entry.create_system = 3
            entry.external_attr = (0o100000 | file.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.content)
