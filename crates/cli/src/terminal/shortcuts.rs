//! The shortcuts of `rookery dev`: a letter and Enter at the terminal, as in Vite. The terminal
//! keeps its mode, so that R can show a prompt there.

use std::io::{self, IsTerminal as _};

use crate::failure::Failure;
use crate::process::{session, start_thread};
use crate::stderr::print_lines;

/// A command that the developer types as one letter and Enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortcut {
    /// Starts the app again, or reloads the open pages of a static site.
    Restart,
    /// Opens the app in a browser.
    Open,
    /// Stops the server.
    Quit,
    /// Lists the shortcuts.
    Help,
}

impl Shortcut {
    /// Returns the shortcut that a line stands for.
    fn of(line: &str) -> Option<Shortcut> {
        match line.trim() {
            "r" => Some(Shortcut::Restart),
            "o" => Some(Shortcut::Open),
            "q" => Some(Shortcut::Quit),
            "h" => Some(Shortcut::Help),
            _ => None,
        }
    }
}

/// The line about the shortcuts on the start-up screen.
pub(crate) const SUMMARY: &str = "r restarts, o opens a browser, q quits, h helps (then Enter)";

const HELP: &str = "  r + Enter: restart the app, or reload the pages of a site\n  \
                    o + Enter: open the address in a browser\n  \
                    q + Enter: quit, as Ctrl-C does\n  \
                    h + Enter: show this list";

/// Returns true if somebody can type shortcuts: standard input is a terminal, and it is not that of
/// an R session.
pub(crate) fn are_available() -> bool {
    io::stdin().is_terminal() && session::parent_session().is_none()
}

/// Starts the thread that reads lines from the terminal and calls `on_shortcut` for each shortcut
/// except [`Shortcut::Help`]. Lines that are typed while `is_for_r` returns true are left to R.
///
/// # Errors
/// Fails if the thread cannot be started.
pub(crate) fn listen(
    is_for_r: impl Fn() -> bool + Send + 'static,
    on_shortcut: impl Fn(Shortcut) + Send + 'static,
) -> Result<(), Failure> {
    start_thread("rookery-shortcuts", move || {
        let mut line = String::new();
        while wait_for_line(&is_for_r) {
            line.clear();
            match io::stdin().read_line(&mut line) {
                // Ctrl-D ends the input.
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
                Err(_) => return,
            }
            match Shortcut::of(&line) {
                Some(Shortcut::Help) => print_lines(HELP),
                Some(shortcut) => on_shortcut(shortcut),
                None => {}
            }
        }
    })
}

/// Waits until the terminal has a line for this program. Returns false if the terminal is closed.
/// The kernel delivers one line at a time.
#[cfg(unix)]
fn wait_for_line(is_for_r: &impl Fn() -> bool) -> bool {
    /// The interval of checks whether a line that has been typed is for this program.
    const CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);
    loop {
        let mut entry = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
        // SAFETY: `entry` is one valid entry.
        if unsafe { libc::poll(&raw mut entry, 1, -1) } < 0 {
            if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return false;
        }
        if entry.revents != libc::POLLIN {
            return false;
        }
        if is_in_foreground() && !is_for_r() {
            return true;
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Returns true, because the program waits for a line by reading one. R never reads from the
/// terminal here.
#[cfg(windows)]
fn wait_for_line(_: &impl Fn() -> bool) -> bool {
    true
}

/// Returns true unless this process is a background job, which must not read what is typed into
/// the shell.
#[cfg(unix)]
fn is_in_foreground() -> bool {
    // SAFETY: the calls take no pointers. The first fails, with -1, if standard input is not the
    // controlling terminal of this process. There is no job control then.
    let (foreground, own) = unsafe { (libc::tcgetpgrp(libc::STDIN_FILENO), libc::getpgrp()) };
    foreground == -1 || foreground == own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_letter_alone_is_a_shortcut() {
        for (line, shortcut) in [
            ("r\n", Some(Shortcut::Restart)),
            (" o \r\n", Some(Shortcut::Open)),
            ("q", Some(Shortcut::Quit)),
            ("h\n", Some(Shortcut::Help)),
            ("rs\n", None),
            ("R\n", None),
            ("\n", None),
            ("", None),
        ] {
            assert_eq!(Shortcut::of(line), shortcut, "{line:?}");
        }
    }
}
