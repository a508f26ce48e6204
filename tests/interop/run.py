#!/usr/bin/env python3
"""Our server and client against others, with and without compression.

    run.py [--bytes N] [--connections N] [peer ...]      default: 64 MiB, 1,000, all of go python node chromium

What the peers need is installed in .local/interop.
"""

import argparse
import http.server
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LOCAL = ROOT / ".local" / "interop"
WEBSOCKETS = "websockets==15.0.1"
# A browser may hold 255 connections to one host.
BROWSER_CONNECTIONS = 200


def example(name: str) -> str:
    line = ["cargo", "build", "--quiet", "--release", "-p", "rookery-websocket", "--example", name]
    done = subprocess.run([*line, "--message-format", "json"], cwd=ROOT, check=True, capture_output=True, text=True)
    for text in done.stdout.splitlines():
        message = json.loads(text)
        if message.get("executable") and message["target"]["name"] == name:
            return message["executable"]
    raise SystemExit(f"interop: no example {name}")


def go() -> list[str]:
    LOCAL.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", str(LOCAL / "go"), "."], cwd=HERE / "go", check=True)
    return [str(LOCAL / "go")]


def python() -> list[str]:
    home = LOCAL / "venv"
    if not (home / "bin" / "python").exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin" / "pip", "install", "--quiet", WEBSOCKETS], check=True)
    return [str(home / "bin" / "python"), str(HERE / "peer.py")]


def node() -> list[str]:
    if not (HERE / "node" / "node_modules" / "ws").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=HERE / "node", check=True, stdout=subprocess.DEVNULL)
    return ["node", str(HERE / "node" / "peer.mjs")]


class Server:
    def __init__(self, line: list[str]) -> None:
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        first = self.process.stdout.readline()
        if "listening on " not in first:
            raise SystemExit(f"interop: {line} printed {first!r}")
        self.url = first.split("listening on ")[1].strip()

    def __enter__(self) -> str:
        return self.url

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def ask(line: list[str]) -> str:
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return "no end within 300 s"
    return "ok" if done.returncode == 0 and done.stdout.strip().endswith("ok") else (done.stdout + done.stderr)[-500:]


def browse(url: str, mode: str, connections: int, size: int) -> str:
    """Chromium opens page.html, which posts what it found."""
    results: queue.Queue[str] = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (HERE / "page.html").read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()
            results.put(body.decode())

        def log_message(self, *_: object) -> None:
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    asked = urllib.parse.urlencode({"url": url, "mode": mode, "connections": connections, "bytes": size})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [
                "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                f"--user-data-dir={profile}", f"http://127.0.0.1:{web.server_port}/?{asked}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return results.get(timeout=300)
        except queue.Empty:
            return "no result within 300 s"
        finally:
            os.killpg(browser.pid, 9)
            browser.wait()
            web.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("peers", nargs="*", default=["go", "python", "node", "chromium"])
    asked = parser.parse_args()
    ours_server, ours_client = example("echo_server"), example("echo_client")
    tools = {"go": ("go", go), "python": ("python3", python), "node": ("npm", node), "chromium": ("chromium", None)}
    failures = 0

    def report(what: str, result: str) -> None:
        nonlocal failures
        failures += result != "ok"
        print(f"{what:55} {result}", flush=True)

    for peer in asked.peers:
        tool, prepare = tools[peer]
        if shutil.which(tool) is None:
            report(peer, f"MISSING: {tool} is not installed")
            continue
        line = prepare() if prepare else []
        for mode in ("plain", "deflate"):
            served = [ours_server, "127.0.0.1:0", *(["--deflate"] if mode == "deflate" else [])]
            with Server(served) as url:
                if peer == "chromium":
                    result = browse(url, mode, min(asked.connections, BROWSER_CONNECTIONS), asked.bytes)
                else:
                    result = ask([*line, "client", url, mode, str(asked.connections), str(asked.bytes)])
                report(f"{peer} client, our server, {mode}", result)
            if peer == "chromium":
                continue
            with Server([*line, "server", mode]) as url:
                result = ask([ours_client, url, mode, str(asked.connections), str(asked.bytes)])
                report(f"our client, {peer} server, {mode}", result)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
