"""Carries out a Dockerfile without Docker: each stage is a root file system, in which packaging/debian-root runs its commands."""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from common import ROOT, Failed

DEBIAN_ROOT = ROOT / "packaging" / "debian-root"
# Debian's image r-base is Debian testing with R. These packages are its contents, in the stable release.
SUITE, PACKAGES = "trixie", ("r-base-core", "r-base-dev")


@dataclass
class Stage:
    """What the lines of one stage have set so far."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def user_number(self) -> str:
        for line in (self.root / "etc" / "passwd").read_text().splitlines():
            name, _, number, *_ = line.split(":")
            if name == self.user:
                return number
        raise Failed(f"the root has no user {self.user}")

    def command(self, words: list[str]) -> list[str]:
        """Returns a command for this machine that runs `words` in the root."""
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return [str(DEBIAN_ROOT), "enter", str(self.root), self.user_number(), self.folder, "env", *settings, *words]

    def start_command(self, arguments: list[str] | None = None) -> list[str]:
        """Returns the command of `docker run`, with other arguments if they are given."""
        return self.command([*self.entrypoint, *(self.arguments if arguments is None else arguments)])


def instructions(text: str) -> list[tuple[str, str]]:
    """Returns the instructions of a Dockerfile and their arguments, with continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.strip().split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


class Builder:
    """The state between the lines of one Dockerfile."""

    def __init__(self, context: Path, work: Path) -> None:
        self.context, self.work = context, work
        self.stages: dict[str, Stage] = {}
        self.stage: Stage | None = None
        self.values: dict[str, str] = {}

    def build(self, text: str) -> Stage:
        for name, rest in instructions(text):
            rest = re.sub(r"\$\{(\w+)\}", lambda found: self.values.get(found[1], found[0]), rest)
            action = getattr(self, f"on_{name.lower()}", None)
            if action is None:
                raise Failed(f"packaging/image/rootfs.py does not know the instruction {name} of the Dockerfile")
            print(f"image: {name} {rest}", flush=True)
            action(rest)
        if self.stage is None:
            raise Failed("the Dockerfile has no FROM")
        return self.stage

    def on_arg(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self.values[name] = value

    def on_from(self, rest: str) -> None:
        image, *alias = rest.split()
        if not image.startswith("r-base"):
            raise Failed(f"packaging/image/rootfs.py can only begin with r-base, and the Dockerfile begins with {image}")
        base = self.work / "base"
        if not base.exists():
            self.execute([DEBIAN_ROOT, "build", SUITE, base, *PACKAGES])
        self.stage = Stage(self.work / f"stage{len(self.stages)}")
        self.execute(["cp", "-a", "--reflink=auto", base, self.stage.root])
        self.stages[alias[1] if alias else str(len(self.stages))] = self.stage

    def on_run(self, rest: str) -> None:
        self.execute(self.stage.command(["DEBIAN_FRONTEND=noninteractive", "sh", "-ec", rest]))

    def on_copy(self, rest: str) -> None:
        *sources, destination = shlex.split(rest)
        root = self.context
        if sources[0].startswith("--from="):
            root = self.stages[sources.pop(0).removeprefix("--from=")].root
        found = [path for source in sources for path in sorted(root.glob(source.lstrip("/")))]
        if not found:
            raise Failed(f"{root} has no {' '.join(sources)}, which the Dockerfile copies")
        place = self.stage.root / destination.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        self.execute(["cp", "-a", "--no-preserve=ownership", *found, place])

    def on_env(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self.stage.environment[name] = value

    def on_user(self, rest: str) -> None:
        self.stage.user = rest

    def on_workdir(self, rest: str) -> None:
        self.stage.folder = rest
        (self.stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def on_expose(self, rest: str) -> None:
        """Does nothing: the root has the network of this machine."""

    def on_entrypoint(self, rest: str) -> None:
        self.stage.entrypoint = json.loads(rest)

    def on_cmd(self, rest: str) -> None:
        self.stage.arguments = json.loads(rest)

    def execute(self, words: list) -> None:
        log = self.work / "log"
        with log.open("w") as out:
            words = [str(word) for word in words]
            status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode
        if status != 0:
            raise Failed(f"`{shlex.join(words)}` ended with status {status}:\n{log.read_text(errors='replace')[-4000:]}")


def build(dockerfile: Path, context: Path, work: Path) -> Stage:
    """Builds the last stage of the Dockerfile in the folder `work`, and returns it."""
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        raise Failed("without Docker, an image is built in a root file system, which needs root and mmdebstrap (scripts/setup pristine)")
    work.mkdir(parents=True, exist_ok=True)
    return Builder(context, work).build(dockerfile.read_text())
