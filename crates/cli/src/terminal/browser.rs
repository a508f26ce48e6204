//! The option `--open`, which opens the served address in the user's browser.

use std::process::{Command, Stdio};

use crate::process::child::own_group;
use crate::process::start_thread;
use crate::stderr::log_line;

/// Opens the URL of the server in a browser without waiting for the browser. A failure is only
/// logged.
pub(crate) fn open(url: Option<&str>) {
    let Some(url) = url else {
        return log_line(
            "`--open` has no effect, because a browser cannot connect to a Unix socket",
        );
    };
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(reason) = reason_not_to_open(is_set) {
        return log_line(&format!("`--open` {reason}; the address is {url}"));
    }
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if cfg!(windows) {
        "explorer"
    } else {
        "xdg-open"
    };
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    detach(&mut command);
    let failed = format!("`--open`: `{program}` could not open a browser; the address is {url}");
    match command.spawn() {
        Err(error) => log_line(&format!("{failed} ({error})")),
        Ok(mut child) => {
            // Waits for the process, which would otherwise become a zombie. The process may be the
            // browser itself.
            let waiting = start_thread("rookery-browser", move || {
                // The exit status of Windows' explorer does not tell whether it has succeeded.
                if child.wait().is_ok_and(|status| !status.success() && !cfg!(windows)) {
                    log_line(&failed);
                }
            });
            if let Err(failure) = waiting {
                log_line(&failure.message());
            }
        }
    }
}

/// Detaches the browser from this program: Ctrl-C at the terminal does not stop the browser, and
/// the browser does not inherit this program's environment variables.
fn detach(command: &mut Command) {
    own_group(command);
    for name in rookery_settings::environment::program_variables() {
        command.env_remove(name);
    }
    for name in rookery_systemd::VARIABLES {
        command.env_remove(name);
    }
}

/// Returns the reason why no browser can be opened, as the continuation of a message that begins
/// with "`--open`". `has` returns true if the environment variable with this name is set.
fn reason_not_to_open(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    if has("DISPLAY") || has("WAYLAND_DISPLAY") {
        return None;
    }
    // The user is at another machine, on which the address may belong to another server.
    if has("SSH_CONNECTION") || has("SSH_TTY") {
        return Some("does not open a browser over SSH");
    }
    // Without a display, `xdg-open` would start a text browser in the server's terminal.
    let needs_display = !cfg!(any(target_os = "macos", windows)) && !has("BROWSER");
    needs_display.then_some("cannot open a browser without a display")
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
            assert!(reason(names).is_some_and(|text| text.contains("SSH")), "{names:?}");
        }
        if !cfg!(any(target_os = "macos", windows)) {
            assert!(reason(&[]).is_some_and(|text| text.contains("display")));
        }
    }
}
