"""Builds the program for other systems, so that it starts on as many machines as possible."""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from common import ROOT, Failed, run, target_folder


@dataclass(frozen=True)
class Target:
    """A system that the program is built for."""

    triple: str
    # The platform of the wheel, as PyPI names it.
    wheel: str
    # The oldest glibc that the program runs with.
    glibc: str = ""

    @property
    def is_windows(self) -> bool:
        return "windows" in self.triple

    @property
    def is_apple(self) -> bool:
        return "apple" in self.triple

    @property
    def program(self) -> str:
        return "rookery.exe" if self.is_windows else "rookery"

    @property
    def debian(self) -> str | None:
        """Returns the architecture of the Debian package, or None for a system that has none."""
        names = {"x86_64-unknown-linux-gnu": "amd64", "aarch64-unknown-linux-gnu": "arm64"}
        return names.get(self.triple)


# Debian 10 and RHEL 8 have glibc 2.28. PyPI names systems by the version of glibc.
TARGETS = {
    target.triple: target
    for target in (
        Target("x86_64-unknown-linux-gnu", "manylinux_2_28_x86_64", glibc="2.28"),
        Target("aarch64-unknown-linux-gnu", "manylinux_2_28_aarch64", glibc="2.28"),
        Target("x86_64-unknown-linux-musl", "musllinux_1_2_x86_64"),
        Target("aarch64-unknown-linux-musl", "musllinux_1_2_aarch64"),
        Target("x86_64-apple-darwin", "macosx_11_0_x86_64"),
        Target("aarch64-apple-darwin", "macosx_11_0_arm64"),
        Target("x86_64-pc-windows-gnu", "win_amd64"),
    )
}
MACOS = "11.0"


def of(triple: str) -> Target:
    if triple not in TARGETS:
        raise Failed(f"there is no target {triple}; the targets are: {', '.join(TARGETS)}")
    return TARGETS[triple]


def environment(tree: Path) -> dict[str, str]:
    """Returns the environment of cargo. The paths of this machine do not become part of the program.

    Cargo itself compiles the workspace by relative paths. Its own path must not be among the flags, because a build in
    another folder, as `scripts/release` makes it, would then compile all dependencies again.
    """
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    rustup = Path(os.environ.get("RUSTUP_HOME", Path.home() / ".rustup"))
    paths = {home / "registry" / "src": "/cargo", rustup: "/rustup"}
    flags = [os.environ.get("RUSTFLAGS", ""), *(f"--remap-path-prefix={path}={name}" for path, name in paths.items())]
    return os.environ | {
        "RUSTFLAGS": " ".join(filter(None, flags)),
        "CARGO_INCREMENTAL": "0",
        "CARGO_TARGET_DIR": str(target_folder(tree)),
        "MACOSX_DEPLOYMENT_TARGET": MACOS,
    }


def needs(target: Target) -> list[str]:
    """Returns what is missing to build for the target, each with the command that installs it."""
    missing = []
    if target.is_windows:
        if not shutil.which("x86_64-w64-mingw32-gcc"):
            missing.append("the linker x86_64-w64-mingw32-gcc (apt-get install gcc-mingw-w64-x86-64)")
    else:
        if not shutil.which("cargo-zigbuild"):
            missing.append("cargo-zigbuild (scripts/setup release)")
        if not (shutil.which("python-zig") or shutil.which("zig")):
            missing.append("zig (scripts/setup release)")
    return missing


def build(target: Target, tree: Path = ROOT) -> Path:
    """Builds the program for the target, and returns its path."""
    if missing := needs(target):
        raise Failed(f"{target.triple} cannot be built without {' and '.join(missing)}")
    if shutil.which("rustup"):
        run(["rustup", "target", "add", target.triple])
    command = "build" if target.is_windows else "zigbuild"
    triple = target.triple + (f".{target.glibc}" if target.glibc else "")
    words = ["cargo", command, "--release", "--locked", "-p", "rookery-cli", "--bin", "rookery", "--target", triple]
    if subprocess.run(words, cwd=tree, env=environment(tree), check=False).returncode != 0:
        raise Failed(f"the program cannot be built for {target.triple}: the messages of cargo are above")
    return target_folder(tree) / target.triple / "release" / target.program


def build_for_this_machine(tree: Path = ROOT) -> Path:
    """Builds a program that runs on this machine, which prints the completions and the manual page."""
    return build(of(f"{platform.machine()}-unknown-linux-musl"), tree)
