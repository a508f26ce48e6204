"""Full disks: for large bodies, and for the log."""

import subprocess

from soak.fleet import Clients, Fleet, Skipped

DISK = "8m"
TOO_LARGE, FITS, SMALL = 12 << 20, 2 << 20, 1000


def spool(is_long: bool) -> list[str]:
    """A body that does not fit on the disk is refused with 507. Everything else is served, and so is
    the next body that fits.
    """
    within = _disk()
    found, outcomes = [], []
    with Fleet("--spool-dir", "/mnt", within=within) as fleet, Clients(fleet) as clients:
        for _ in range(20 if is_long else 3):
            outcomes += [(size, *fleet.ask("/upload", bytes(size))) for size in (TOO_LARGE, FITS, SMALL)]
        clients.wait_for(100)
        clients.end()
        said = fleet.find(".*507.*")
    print(f"{len(outcomes)} uploads, {clients.total} other requests, failed: {clients.failed or 'none'}")
    for size, status, body in outcomes:
        if (status, body) != (200, str(size).encode()) and not (size == TOO_LARGE and status == 507):
            found.append(f"{size} bytes were answered {status} {body[:60]!r}")
    if not said:
        found.append("nobody was told")
    return found + ([f"failed: {clients.failed}"] if clients.failed else [])


def _disk() -> tuple[str, ...]:
    """Runs a program with a small disk at /mnt, which is removed with the program. Raises Skipped."""
    mount = ("sh", "-c", f'mount -t tmpfs -o size={DISK} tmpfs /mnt && exec "$@"', "sh")
    for unshare in (("unshare", "--mount"), ("unshare", "--mount", "--map-root-user")):
        done = subprocess.run([*unshare, *mount, "true"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return (*unshare, *mount)
    raise Skipped(f"no disk can be mounted: {done.stderr.strip()}")


def log(_: bool) -> list[str]:
    """With the log on a full disk, everything is served, and the lines that could not be written are
    counted.
    """
    with Fleet("--log", "/dev/full", has_log=True) as fleet, Clients(fleet) as clients:
        clients.wait_for(1000)
        clients.end()
        fleet.wait("the lines are counted", lambda: fleet.metric("rookery_log_lines_lost_total") >= clients.total)
        lost = fleet.metric("rookery_log_lines_lost_total")
    print(f"{clients.total} requests, failed: {clients.failed or 'none'}, {lost:.0f} lines lost")
    found = [f"failed: {clients.failed}"] if clients.failed else []
    return found + ([f"{lost:.0f} lines lost of {clients.total}"] if lost != clients.total else [])
