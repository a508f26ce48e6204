"""Packs the R package, and rookery's package httpuv, into the tarballs that R installs.

The first goes to CRAN, which accepts no package that contains another one. Shiny, plumber and other packages that use httpuv need
the second: `rookery::install_compat()` installs it into rookery's own library.
"""

import os
import tempfile
from pathlib import Path

from common import ROOT, Failed, run

# The folder of each package, and the form of its tarball's name.
SOURCES = {"r": "rookery_*.tar.gz", "compat/httpuv": "httpuv_*.tar.gz"}
# R CMD build builds the Rust code only to run the vignettes, and removes it again.
UNOPTIMISED = {
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_DEBUG": "false",
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0",
}


def make(out: Path, tree: Path = ROOT, has_vignettes: bool = True) -> list[Path]:
    """Writes both tarballs into the folder `out`, and returns their paths. The vignettes take a build of the R package."""
    # A build of the tree must not use that of another version.
    environment = {name: value for name, value in os.environ.items() if name not in ("CARGO_TARGET_DIR", "R_LIBS", "ROOKERY_COMPAT")} | UNOPTIMISED
    made = []
    for source, pattern in SOURCES.items():
        with tempfile.TemporaryDirectory() as build:
            run(["R", "CMD", "build", *([] if has_vignettes else ["--no-build-vignettes"]), tree / source], cwd=build, env=environment)
            found = sorted(Path(build).glob(pattern))
            if len(found) != 1:
                raise Failed(f"R CMD build {source} made {len(found)} files {pattern}")
            made.append(out / found[0].name)
            made[-1].write_bytes(found[0].read_bytes())
    return made
