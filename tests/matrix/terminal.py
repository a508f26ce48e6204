"""`rookery dev` and `rookery serve --interactive` at a terminal, which is a pseudo-terminal here."""

import contextlib
import http.client
import os
import pty
import shutil
import signal
import tempfile
import termios
import threading
import time
from pathlib import Path

from behaviours import behaviour
from server import LIBRARY, PATIENCE, PROGRAM, Failed, check, equal, free_port, until

APP = """
reply <- function(text) list(status = 200L, headers = list(), body = text)
list(call = function(req) switch(req$PATH_INFO,
  "/ask" = reply(paste("hello", readline("your name? "))),
  "/browse" = { x <- 42; browser(); reply(paste("x is", x)) },
  "/sleep" = { Sys.sleep(60); reply("slept") },
  "/loop" = repeat NULL,
  "/version" = reply("first version"),
  reply(paste(Sys.getpid(), interactive(), getOption("profile"), "package:stats" %in% search()))
))
"""


def _shell(command, told, asked):
    """Runs a command as a job in the foreground, and puts it into the background (b) or the foreground (f) when asked to."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        # Whoever runs the tests in the background has been told to ignore some of these.
        for number in (signal.SIGTTOU, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.execv(command[0], command)
    os.write(told, b"%d\n" % job)
    os.set_blocking(asked, False)
    while True:
        ended, status = os.waitpid(job, os.WNOHANG)
        if ended:
            os._exit(os.waitstatus_to_exitcode(status) & 255)
        with contextlib.suppress(BlockingIOError):
            wish = os.read(asked, 1)
            os.tcsetpgrp(0, job if wish == b"f" else os.getpgrp())
            if wish == b"f":
                os.killpg(job, signal.SIGCONT)
        time.sleep(0.002)


class Terminal:
    """The program as a job of a shell, at a terminal of its own."""

    def __init__(self, *words, files=None):
        self.folder = Path(tempfile.mkdtemp(prefix="rookery-terminal-"))
        (self.folder / "tmp").mkdir()
        for name, text in ({"app.R": APP, ".Rprofile": "options(profile = 'ran')\n"} | (files or {})).items():
            (self.folder / name).write_text(text)
        self.port = free_port()
        self.shown = ""
        (hears, told), (asked, self.asks) = os.pipe(), os.pipe()
        self.shell, self.screen = pty.fork()
        if self.shell == 0:
            os.chdir(self.folder)
            os.environ |= {"R_LIBS": str(LIBRARY), "HOME": str(self.folder), "TMPDIR": str(self.folder / "tmp"), "TERM": "xterm"}
            _shell([str(PROGRAM), *words, str(self.folder), "--port", str(self.port), "--log=none"], told, asked)
        self.pid = int(os.read(hears, 20))
        for end in (hears, told, asked):
            os.close(end)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with contextlib.suppress(OSError):
            while part := os.read(self.screen, 65536):
                self.shown += part.decode(errors="replace")

    def shows(self, text, seconds=PATIENCE):
        try:
            until(f"the terminal shows {text!r}", lambda: text in self.shown, seconds)
        except Failed as failed:
            raise Failed(f"{failed} in {self.shown[-1500:]!r}") from None

    def type(self, text):
        os.write(self.screen, text.encode())

    def is_canonical(self):
        return bool(termios.tcgetattr(self.screen)[3] & termios.ICANON)

    def get(self, path="/"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def begin(self, path):
        found = []

        def run():
            with contextlib.suppress(OSError, http.client.HTTPException):
                found.append(self.get(path))

        threading.Thread(target=run, daemon=True).start()
        return found

    def ended(self, seconds=PATIENCE):
        """Waits for the end; returns the exit status and how long it took."""
        began = time.monotonic()
        while True:
            pid, status = os.waitpid(self.shell, os.WNOHANG)
            if pid:
                self.shell = None
                return os.waitstatus_to_exitcode(status), time.monotonic() - began
            check(time.monotonic() - began < seconds, f"it does not end, and shows {self.shown[-1500:]!r}")
            time.sleep(0.005)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.shell:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
                os.waitpid(self.shell, 0)
        os.close(self.screen)
        os.close(self.asks)
        shutil.rmtree(self.folder, ignore_errors=True)


@behaviour("one worker")
def prompts_at_a_terminal_after_the_users_profile(_):
    with Terminal("dev") as it:
        it.shows("Serving on")
        pid, *seen = it.get().split()
        equal(seen, ["TRUE", "ran", "TRUE"], "interactive(), the profile's option, and whether stats is attached")
        equal(os.getpgid(int(pid)), it.pid, "the process group of the worker")
        answer = it.begin("/ask")
        it.shows("your name? ")
        it.type("Ada\n")
        until("it is answered", lambda: answer == ["hello Ada"])
        answer = it.begin("/browse")
        it.shows("Browse[1]>")
        it.type("x <- x + 1\n")
        it.type("c\n")
        until("it is answered", lambda: answer == ["x is 43"])


@behaviour("one worker")
def leaves_ctrl_c_at_a_prompt_to_r(_):
    with Terminal("serve", "--interactive") as it:
        it.shows("Serving on")
        pid = it.get().split()[0]
        answer = it.begin("/browse")
        for at in range(3):
            until("R is at a prompt", lambda: it.shown.count("Browse[1]>") > at and not it.is_canonical())
            time.sleep(0.3)
            # R prompts again.
            it.type("\x03")
        it.type("c\n")
        until("the request is answered", lambda: answer == ["x is 42"])
        answer = it.begin("/ask")
        until("R is at a prompt", lambda: "your name?" in it.shown and not it.is_canonical())
        time.sleep(0.3)
        it.type("\x03")
        until("the handler is interrupted", lambda: answer and "interrupted" in answer[0])
        equal(it.get().split()[0], pid, "the R process that serves on")
        # What comes right behind a prompt is taken for the prompt's.
        time.sleep(0.3)
        it.type("\x03")
        equal(it.ended()[0], 0, "the exit status")


def _ends_soon(it, what):
    # The text asks for a second, which a loaded machine may exceed; without Ctrl-C all of these would take a minute.
    it.type("\x03")
    status, seconds = it.ended()
    equal(status, 0, f"the exit status while {what}")
    check(seconds < 5, f"it took {seconds:.1f} s to end while {what}")
    check(it.is_canonical(), "the terminal is left at a prompt")
    return seconds


@behaviour("one worker")
def ends_at_once_of_ctrl_c_whatever_r_does(_):
    for path in (None, "/sleep", "/loop"):
        with Terminal("dev") as it:
            it.shows("Serving on")
            if path:
                it.begin(path)
                time.sleep(1)
            seconds = _ends_soon(it, f"{path} runs")
            print(f"         Ctrl-C with {path}: {seconds:.2f} s", flush=True)
    with Terminal("dev", files={"app.R": "message('loading'); Sys.sleep(100)"}) as it:
        it.shows("loading")
        _ends_soon(it, "the app is loaded")


@behaviour("one worker")
def restores_the_terminal_when_it_is_ended_at_a_prompt(_):
    with Terminal("dev") as it:
        it.shows("Serving on")
        it.begin("/browse")
        until("R is at a prompt", lambda: "Browse[1]>" in it.shown and not it.is_canonical())
        os.kill(it.pid, signal.SIGTERM)
        equal(it.ended()[0], 0, "the exit status")
        check(it.is_canonical(), "the terminal is left as R had it at its prompt")


@behaviour("one worker")
def is_not_scaled_by_the_signals_of_a_terminal(_):
    with Terminal("dev") as it:
        it.shows("Serving on")
        os.write(it.asks, b"b")
        until("it is in the background", lambda: os.tcgetpgrp(it.screen) != it.pid)
        # R prompts, and so the system sends SIGTTOU and SIGTTIN to the whole group.
        answer = it.begin("/ask")
        time.sleep(1.5)
        os.write(it.asks, b"f")
        it.shows("your name? ")
        it.type("Ada\n")
        until("it is answered", lambda: answer == ["hello Ada"])
        check("added one worker" not in it.shown and "no worker is removed" not in it.shown, it.shown[-800:])


@behaviour("one worker")
def reloads_at_a_terminal_when_a_file_changes(_):
    with Terminal("dev") as it:
        it.shows("Serving on")
        path = it.folder / "app.R"
        path.write_text(path.read_text().replace("first version", "second version"))
        until("the new app serves", lambda: it.get("/version") == "second version")


@behaviour("one worker")
def restarts_and_quits_by_shortcuts_unless_r_is_at_a_prompt(_):
    with Terminal("dev") as it:
        it.shows("r restarts, o opens a browser, q quits")
        pid = it.get().split()[0]
        answer = it.begin("/browse")
        until("R is at a prompt", lambda: "Browse[1]>" in it.shown and not it.is_canonical())
        # Letters at a prompt are R's, also several lines at once.
        it.type("r <- 7; h <- 1; o <- 2\nr\nx <- r\nc\n")
        until("it is answered", lambda: answer == ["x is 7"])
        equal(it.get().split()[0], pid, "the R process")
        time.sleep(2.5)
        it.type("r\n")
        until("R is another process", lambda: it.get().split()[0] != pid)
        it.shows("ended with status 0 as requested")
        path = it.folder / "app.R"
        whole = path.read_text()
        path.write_text(whole + ")")
        it.shows("unexpected")
        check("the error above is fixed" not in it.shown, it.shown[-800:])
        path.write_text(whole)
        it.shows("the error above is fixed: the app runs")
        it.type("q\n")
        equal(it.ended()[0], 0, "the exit status")
        check(it.is_canonical(), "the terminal is left at a prompt")
