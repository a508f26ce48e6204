//! `--open`: opens the served address in the user's browser.

use std::process::{Command, Stdio};

use crate::stderr::log_line;

/// The reason why no browser is opened.
#[derive(Debug, PartialEq, Eq)]
enum NotOpened {
    /// The user is at another machine, on which the address may belong to another server.
    OverSsh,
    /// There is no display.
    NoDisplay,
}

/// Opens the URL in a browser without waiting for the browser. The start-up screen shows the
/// address as well, so a failure is only logged.
pub(crate) fn open(url: Option<&str>) {
    let Some(url) = url else {
        return log_line(
            "`--open` has no effect, because a browser cannot connect to a Unix socket",
        );
    };
    match reason_not_to_open(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        Some(NotOpened::OverSsh) => {
            return log_line(&format!(
                "`--open` does not open a browser over SSH; the address is {url}"
            ));
        }
        Some(NotOpened::NoDisplay) => {
            return log_line(&format!(
                "`--open` cannot open a browser without a display; the address is {url}"
            ));
        }
        None => {}
    }
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    detach(&mut command);
    let failed = |error: &dyn std::fmt::Display| {
        log_line(&format!(
            "`--open`: `{program}` could not open a browser ({error}); the address is {url}"
        ));
    };
    match command.spawn() {
        Err(error) => failed(&error),
        Ok(mut child) => {
            let url = url.to_owned();
            // Waits for the process, which would otherwise become a zombie. The process may be the
            // browser itself.
            let waiting =
                std::thread::Builder::new().name("rookery-browser".to_owned()).spawn(move || {
                    if child.wait().is_ok_and(|status| !status.success()) {
                        log_line(&format!(
                            "`--open`: `{program}` could not open a browser; the address is {url}"
                        ));
                    }
                });
            if let Err(error) = waiting {
                failed(&error);
            }
        }
    }
}

/// Keeps Ctrl-C and the settings of this program from the browser, which may outlive the server.
fn detach(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    command.process_group(0);
    for name in rookery_settings::environment::program_variables() {
        command.env_remove(name);
    }
    for name in rookery_systemd::VARIABLES {
        command.env_remove(name);
    }
}

fn reason_not_to_open(has: impl Fn(&str) -> bool) -> Option<NotOpened> {
    let has_display = has("DISPLAY") || has("WAYLAND_DISPLAY");
    if (has("SSH_CONNECTION") || has("SSH_TTY")) && !has_display {
        return Some(NotOpened::OverSsh);
    }
    // Without a display, `xdg-open` would start a text browser in the server's terminal.
    let needs_display = !cfg!(target_os = "macos") && !has("BROWSER");
    (needs_display && !has_display).then_some(NotOpened::NoDisplay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_a_browser_only_where_the_user_sees_it() {
        let reason = |names: &[&str]| reason_not_to_open(|name| names.contains(&name));
        for names in [&["DISPLAY"][..], &["WAYLAND_DISPLAY"], &["SSH_TTY", "DISPLAY"], &["BROWSER"]]
        {
            assert_eq!(reason(names), None, "{names:?}");
        }
        for names in [&["SSH_CONNECTION"][..], &["SSH_TTY"], &["SSH_TTY", "BROWSER"]] {
            assert_eq!(reason(names), Some(NotOpened::OverSsh), "{names:?}");
        }
        if !cfg!(target_os = "macos") {
            assert_eq!(reason(&[]), Some(NotOpened::NoDisplay));
        }
    }
}
