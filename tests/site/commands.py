"""Runs the commands that the website shows: extracts the blocks of code of a page, and executes them in their order.

A block runs as its language says: `sh` in bash and `r` in Rscript, in a new folder for each page, with the command rookery
and the package of ROOKERY_LIB. A comment before a block says what else it is:

    <!-- run: file NAME -->            the contents of a file
    <!-- run: server -->               runs until the next server or the end of the page; it is waited for until it serves
    <!-- run: server until "TEXT" -->  the same, until it prints TEXT
    <!-- run: ... beside the one before -->  the server before goes on
    <!-- run: output -->               the output of the block before, or of the server; `...` stands for any text
    <!-- run: until -->                the same, and the server is waited for until it has printed it
    <!-- run: ... with A = B, C = D -->     runs with B for A: what needs root, or the internet
    <!-- run: elsewhere PATH (WHY) --> does not run here; PATH, which must exist, is the test or what is tested
    <!-- run: part -->                 a part of a program, which only has to parse

Blocks of Rmd files in braces (```{r}) are run by knitr when the website is built; with `eval = FALSE` they need one of these.
"""

import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = Path(os.environ.get("ROOKERY_LIB", ROOT / ".local" / "lib")).resolve()
# Seconds that a command, or the start or end of a server, may take on a busy machine.
PATIENCE = 180
FENCE = re.compile(r"^(?P<indent> *)```(?P<about>.*)$")
MARKER = re.compile(r"^\s*<!-- run: (?P<text>.*) -->\s*$")
# The beginnings by which a block without a language is recognized as a command.
LOOKS_LIKE_COMMAND = re.compile(r"^(rookery|curl|make|Rscript|R|docker|kubectl|sudo|systemctl|ssh|pip|cargo|git|OTEL_\w+=\S+) ", re.M)


class Failed(Exception):
    """A command of a page that does not do what the page says."""


@dataclass
class Block:
    page: str
    line: int
    language: str
    marker: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Returns the blocks of a page that knitr does not run."""
    found: list[Block] = []
    name = str(page.relative_to(ROOT) if page.is_relative_to(ROOT) else page)
    marker, opened = "", None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if opened is not None:
            if fence and not fence["about"].strip():
                found.append(opened)
                marker, opened = "", None
            else:
                opened.text += line.removeprefix(indent) + "\n"
        elif fence:
            about, indent = fence["about"].strip(), fence["indent"]
            opened = Block(name, number, about, marker, "")
        elif match := MARKER.match(line):
            marker = match["text"]
        elif line.strip():
            marker = ""
    return [block for block in found if not is_knitted(block) and block.language != "{=html}"]


def is_knitted(block: Block) -> bool:
    return block.language.startswith("{r") and "eval = FALSE" not in block.language


def replaced(text: str, marker: str) -> str:
    """Applies `with A = B, C = D` of a marker."""
    for pair in filter(None, re.sub(r"^.*?\bwith ", "", marker).split(", ") if " with " in f" {marker}" else []):
        before, _, after = pair.partition(" = ")
        if before not in text:
            raise Failed(f"'{before}', which the marker replaces, is not in the block")
        text = text.replace(before, after)
    return text


@dataclass
class Server:
    """A program that a block starts and that serves until it is stopped."""

    words: list[str]
    folder: Path
    environment: dict[str, str]
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = Path(tempfile.mkstemp(suffix=".log")[1])
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, pattern: re.Pattern) -> None:
        deadline = time.monotonic() + PATIENCE
        while not pattern.search(self.output()):
            if self.process.poll() is not None:
                raise Failed(f"it ended with status {self.process.returncode}:\n{self.output()}")
            if time.monotonic() > deadline:
                raise Failed(f"within {PATIENCE} s it did not print {pattern.pattern!r}:\n{self.output()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stops the server by SIGTERM, as a service manager does."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed(f"SIGTERM did not stop it:\n{self.output()}") from None
        if status != 0:
            raise Failed(f"SIGTERM stopped it with status {status}:\n{self.output()}")


class Page:
    """The commands of one page, in a folder of their own."""

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks
        self.scratch = tempfile.TemporaryDirectory(prefix="rookery-site-")
        self.folder = Path(self.scratch.name)
        self.servers: list[Server] = []
        self.output = ""
        home = self.folder / "home"
        binaries = self.folder / "bin"
        home.mkdir()
        binaries.mkdir()
        (binaries / "rookery").symlink_to(LIBRARY / "rookery" / "exec" / "rookery")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
        self.environment = inherited | {
            "HOME": str(home), "PATH": f"{binaries}:{os.environ['PATH']}", "R_LIBS": str(LIBRARY), "LC_ALL": "C.UTF-8", "NO_COLOR": "1",
            "TMPDIR": str(home),
        }
        # The commands of a page run beside `home`, so that what they write is all there is.
        self.work = self.folder / "work"
        self.work.mkdir()

    def run(self) -> dict[str, int]:
        """Runs all blocks, and returns how many there were of which kind."""
        counts: dict[str, int] = {}
        try:
            for block in self.blocks:
                try:
                    kind = self.run_block(block)
                except Failed as reason:
                    raise Failed(f"{block.where}: {reason}") from None
                counts[kind] = counts.get(kind, 0) + 1
            self.stop_servers()
        finally:
            for server in self.servers:
                if server.process.poll() is None:
                    server.process.kill()
                    server.process.wait()
            self.scratch.cleanup()
        return counts

    def stop_servers(self) -> None:
        while self.servers:
            self.servers.pop().stop()

    def run_block(self, block: Block) -> str:
        kind, _, rest = block.marker.partition(" ")
        text = block.text if kind == "elsewhere" else replaced(block.text, block.marker)
        match kind:
            case "elsewhere":
                return elsewhere(rest)
            case "file":
                path = self.work / rest.split(" with ")[0]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                return "file"
            case "output" | "until":
                self.expect(block, kind == "until")
                return "output"
            case "part":
                parse(text, self.environment)
                return "part"
            case "server":
                self.serve(block, text)
                return "server"
            case "" | "with":
                return self.execute(block, text)
        raise Failed(f"there is no marker '{block.marker}'")

    def words(self, block: Block, text: str) -> list[str]:
        if block.language == "sh":
            return ["bash", "-euo", "pipefail", "-c", text]
        if block.language in ("r", "{r, eval = FALSE}"):
            return ["Rscript", "-e", text]
        raise Failed(f"a block in '{block.language}' cannot run: a marker has to say what it is")

    def execute(self, block: Block, text: str) -> str:
        if block.language in ("text", ""):
            if not block.language and LOOKS_LIKE_COMMAND.search(text):
                raise Failed("the block has a command but no language: write ```sh")
            return "text"
        try:
            done = subprocess.run(
                self.words(block, text), cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"it took longer than {PATIENCE} s: does it serve? Then it needs the marker server") from None
        self.output = done.stdout
        if done.returncode != 0:
            raise Failed(f"it ended with status {done.returncode}:\n{text}\n{done.stdout}")
        return block.language.strip("{}").split(",")[0]

    def serve(self, block: Block, text: str) -> None:
        if "beside the one before" not in block.marker:
            self.stop_servers()
        if block.language == "sh":
            # The last command serves; bash is replaced by it, so that the signal reaches it.
            joined = text.replace("\\\n", " ").strip().split("\n")
            text = "\n".join([*joined[:-1], f"exec {joined[-1]}"])
        until = re.search(r'until "([^"]*)"', block.marker)
        server = Server(self.words(block, text), self.work, self.environment)
        self.servers.append(server)
        server.wait_for(re.compile(re.escape(until[1]) if until else r'^(\{.*"message":")?Serving on', re.M))
        self.output = ""

    def expect(self, block: Block, waits: bool) -> None:
        """Checks that each line of a block is in the output; `...` stands for any text within a line."""
        for line in filter(None, block.text.splitlines()):
            pattern = re.compile(r".*".join(re.escape(part.strip()).replace(r"\ ", r"\s+") if part != "" else "" for part in line.split("...")), re.M)
            if waits:
                self.servers[-1].wait_for(pattern)
            elif not pattern.search(shown := self.output or (self.servers[-1].output() if self.servers else "")):
                raise Failed(f"the output has no line '{line}':\n{shown}")


def elsewhere(rest: str) -> str:
    """Checks that a marker names a path, and why the block does not run here."""
    path, _, reason = rest.partition(" ")
    if not (ROOT / path).exists():
        raise Failed(f"{path}, which is said to cover the block, does not exist")
    if not re.fullmatch(r"\(.{10,}\)", reason):
        raise Failed("the marker says where the block is covered, but not how: elsewhere PATH (HOW)")
    return "elsewhere"


def parse(text: str, environment: dict[str, str]) -> None:
    done = subprocess.run(["Rscript", "-e", "invisible(parse(file('stdin')))"], input=text, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"it does not parse:\n{done.stderr}")
