"""Packs the program into an archive: .tar.gz, and .zip for Windows."""

from pathlib import Path

import licences
from common import ROOT, File, epoch, run, tar_gz, version, zip_file
from program import Target

COMPLETIONS = {"bash": "rookery.bash", "fish": "rookery.fish", "zsh": "_rookery", "powershell": "rookery.ps1"}


README = """\
# Rookery $VERSION: the program

`rookery` serves Shiny apps, plumber APIs and static sites over HTTP and
WebSocket. This archive contains the program alone.

```sh
./rookery serve site/            # a folder with an index.html: needs nothing else
./rookery --version --verbose    # the build, the system, and the R that is used
```

Apps in R need R (4.2 or later) and the R package rookery of the same version,
which contains this program. Install the package, and use its program:
`Rscript -e 'rookery::install_cli("~/.local/bin")'`.

- `man/rookery.1`: the manual page (`man ./man/rookery.1`).
- `completions/`: for bash, fish, zsh and PowerShell.
- `LICENSE`: the licence of Rookery (MIT). `THIRD-PARTY-LICENSES.txt`: those of
  the works of others that the program contains.
- `SHA256SUMS`, beside this archive at the place that you have it from, has its
  checksum: `sha256sum --check --ignore-missing SHA256SUMS`.
"""


def generated(runnable: Path) -> dict[str, File]:
    """Returns the manual page and the completions, which a program for this machine prints."""
    files = {f"completions/{name}": File(run([runnable, "completions", shell])) for shell, name in COMPLETIONS.items()}
    return files | {"man/rookery.1": File(run([runnable, "man"]))}


def legal(target: Target, tree: Path = ROOT) -> dict[str, File]:
    found = licences.crates(["rookery-cli"], [target.triple], tree)
    return {"LICENSE": File(tree / "LICENSE"), "THIRD-PARTY-LICENSES.txt": File(licences.texts(found, tree))}


def readme(tree: Path = ROOT) -> File:
    return File(README.replace("$VERSION", version(tree)))


def make(target: Target, program: Path, runnable: Path, out: Path, tree: Path = ROOT) -> Path:
    """Writes the archive of the target's program into the folder `out`, and returns its path."""
    name = f"rookery-{version(tree)}-{target.triple}"
    files = generated(runnable) | legal(target, tree)
    files["README.md"] = readme(tree)
    files[target.program] = File(program, is_program=True)
    inside = {f"{name}/{path}": file for path, file in sorted(files.items())}
    path = out / (f"{name}.zip" if target.is_windows else f"{name}.tar.gz")
    (zip_file if target.is_windows else tar_gz)(path, inside, epoch(tree))
    return path
