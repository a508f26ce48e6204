"""What every kind of group shares: the options of a run, the cells of a scenario, and the files that are served."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from . import build, peers
from .peers import PeerMissing, Server
from .sampling import FAILED, MISSING, OK, Cell, interleave
from .scenarios import Scenario

STATIC_FILES = {"10k.txt": 10 * 1024, "10m.bin": 10 * 1024 * 1024}
ONE_GIB = 1 << 30
WARM_UP_S = 0.3


@dataclass
class Options:
    quick: bool
    placement: str
    only: list[str]
    only_peers: list[str]
    say: Callable[[str], None]
    # Where tables and graphs go, and whether to draw flame graphs.
    out: Path = build.OUT
    flame: bool = False
    # The share of the machine that other programs used during the samples of the group that ran last.
    others: float = 0.0

    def seconds(self, scenario: Scenario) -> float:
        return scenario.quick_seconds if self.quick else scenario.seconds

    def iterations(self, scenario: Scenario) -> int:
        return scenario.quick_iterations if self.quick else scenario.iterations

    def chosen(self, scenarios: list[Scenario]) -> list[Scenario]:
        """The scenarios of this run, with the peers of this run."""
        wanted = [scenario for scenario in scenarios if self.wants(scenario)]
        if not self.only_peers:
            return wanted
        kept = [replace(one, peers=[peer for peer in one.peers if peer in self.only_peers]) for one in wanted]
        return [scenario for scenario in kept if scenario.peers]

    def wants(self, scenario: Scenario) -> bool:
        if self.only:
            return scenario.name in self.only
        return scenario.quick or not self.quick


def static_folder() -> Path:
    """A folder with the files that the static scenarios ask for, made once: text that does not compress to nothing."""
    folder = build.OUT / "static"
    folder.mkdir(parents=True, exist_ok=True)
    line = b"0123456789 abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ\n"
    for name, size in STATIC_FILES.items():
        path = folder / name
        if not path.exists() or path.stat().st_size != size:
            path.write_bytes((line * (size // len(line) + 1))[:size])
    return folder


def one_gib_file() -> Path:
    """One GiB of zeros without blocks on the disk: what is measured is the server, not the disk."""
    path = static_folder() / "1g.bin"
    with path.open("ab") as file:
        file.truncate(ONE_GIB)
    return path


def prepare(scenarios: list[Scenario]) -> dict[str, tuple[str, str]]:
    """Builds what the scenarios' servers need. Returns, for each peer that cannot run, its status and the reason."""
    absent: dict[str, tuple[str, str]] = {}
    for peer in {peer for scenario in scenarios for peer in scenario.peers}:
        try:
            peers.command(peer, 0, "hello", Path())
        except (PeerMissing, build.BuildError, OSError) as error:
            absent[peer] = (MISSING, str(error))
    return absent


def open_cells(scenario: Scenario, absent: dict[str, tuple[str, str]]) -> list[Cell]:
    cells = []
    for peer in scenario.peers:
        cell = Cell(scenario.name, peer)
        if peer in absent:
            cell.status, cell.reason = absent[peer]
        cells.append(cell)
    return cells


class Servers:
    """The servers of one workload, started when first asked for, all stopped at the end."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.workload = ""
        self.placement = options.placement
        self.running: dict[str, Server] = {}
        self.broken: dict[str, str] = {}

    def __enter__(self) -> "Servers":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def switch(self, workload: str, placement: str | None = None) -> None:
        wanted = (workload, placement or self.options.placement)
        if wanted != (self.workload, self.placement):
            self.stop_all()
            self.workload, self.placement = wanted

    def get(self, cell: Cell, variables: dict[str, str] | None = None) -> Server | None:
        """The running server of the cell's peer, or None after marking the cell FAILED."""
        if cell.peer in self.running and not self.running[cell.peer].is_alive():
            self.running.pop(cell.peer)
        if cell.peer not in self.running and cell.peer not in self.broken:
            try:
                server = peers.start(cell.peer, self.workload, static_folder(), self.placement, variables)
                server.pause()
                self.running[cell.peer] = server
            except (RuntimeError, OSError) as error:
                self.broken[cell.peer] = str(error)
        if cell.peer in self.broken:
            cell.status, cell.reason = FAILED, self.broken[cell.peer]
            return None
        return self.running[cell.peer]

    def ready(self, row: list[Cell]) -> list[Cell]:
        """The cells whose servers run; the others are marked."""
        return [cell for cell in row if cell.status == OK and self.get(cell) is not None]

    def each(self, row: list[Cell], measure: Callable[[Cell, Server], None]) -> None:
        """Measures each cell whose server runs, in its turn; one that raises is FAILED."""
        for cell in self.ready(row):
            server = self.running[cell.peer]
            try:
                with server.in_turn():
                    measure(cell, server)
            except (RuntimeError, OSError, ValueError) as error:
                cell.fail(str(error))

    def interleave(self, row: list[Cell], scenario: Scenario, load: Callable[[Server, float], dict[str, float]]) -> None:
        """Loads each server that runs in its turn, for so many seconds: to warm it up first, and then once for each sample."""
        row = self.ready(row)

        def once(cell: Cell, seconds: float) -> dict[str, float]:
            with self.running[cell.peer].in_turn() as server:
                return load(server, seconds)

        for cell in row:
            try:
                once(cell, WARM_UP_S)
            except (RuntimeError, OSError) as error:
                cell.fail(str(error))
        interleave(row, lambda cell: once(cell, self.options.seconds(scenario)))
        for cell in row:
            if cell.status == OK:
                cell.single["peak_bytes"] = float(self.running[cell.peer].memory_bytes("VmHWM"))

    def stop_all(self) -> None:
        for server in self.running.values():
            server.stop()
        self.running.clear()
        self.broken.clear()
