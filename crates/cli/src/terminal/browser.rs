//! Opens addresses in the user's browser, for the option `--open` and the command `rookery live`.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rookery_settings::{Settings, Source};
use rookery_system::random::unpredictable;

use crate::process::{own_group, session, start_thread};
use crate::stderr::log_line;

/// The time for which the file that leads a browser to a URL is kept after the browser has been
/// started.
const FILE_LIFETIME: Duration = Duration::from_secs(10);

/// Whether the URL of a server is opened in a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    No,
    /// The URL is opened if there is a browser, as is usual in development.
    IfPossible,
    /// The user has asked for it, and a failure is logged.
    Requested,
}

impl Opening {
    /// Returns what the settings say.
    pub(crate) fn of(all: &Settings) -> Opening {
        let is_default = all.given("open").is_some_and(|given| given.source == Source::Default);
        match all.flag("open") {
            false => Opening::No,
            true if is_default => Opening::IfPossible,
            true => Opening::Requested,
        }
    }
}

/// Opens the URL of the server in a browser without waiting for the browser, or has it opened by
/// the R session that has started this program.
pub(crate) fn open(url: Option<&str>, opening: Opening) {
    if opening == Opening::No || session::open(url) {
        return;
    }
    let is_requested = opening == Opening::Requested;
    let Some(url) = url else {
        if is_requested {
            log_line("no browser is opened, because a browser cannot connect to a Unix socket");
        }
        return;
    };
    let failed = move |reason: String, url: &str| {
        if is_requested {
            log_line(&format!("the server {reason}; the address is {}", without_token(url)));
        }
    };
    match Launched::start(url) {
        Err(reason) => failed(reason, url),
        Ok(launched) => {
            // Waits for the process, which would otherwise become a zombie. The process may be the
            // browser itself.
            let url = url.to_owned();
            let waiting = start_thread("rookery-browser", move || {
                if let Err(reason) = launched.wait() {
                    failed(reason, &url);
                }
            });
            if let Err(failure) = waiting {
                log_line(&failure.message());
            }
        }
    }
}

/// Opens a URL in a browser, and waits until the browser has had the time to read it.
///
/// # Errors
/// Returns the reason why no browser can be opened, as the continuation of a sentence.
pub(crate) fn open_and_wait(url: &str) -> Result<(), String> {
    Launched::start(url)?.wait()
}

/// Returns a URL without its query if it contains a token and standard error is not a terminal,
/// because a log must not contain the token.
fn without_token(url: &str) -> &str {
    let is_shown = !has_token(url) || std::io::stderr().is_terminal();
    if is_shown { url } else { url.split('?').next().unwrap_or(url) }
}

fn has_token(url: &str) -> bool {
    url.contains("?token=")
}

/// A browser that has been started, and the file that leads it to the URL.
struct Launched {
    program: &'static str,
    child: Child,
    file: Option<RedirectFile>,
}

impl Launched {
    /// Starts a browser that opens a URL. A URL with a token does not become an argument, which
    /// every user of the machine could read.
    fn start(url: &str) -> Result<Launched, String> {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(reason) = reason_not_to_open(is_set) {
            return Err(reason.to_owned());
        }
        let program = if cfg!(target_os = "macos") {
            "open"
        } else if cfg!(windows) {
            "explorer"
        } else {
            "xdg-open"
        };
        let file = has_token(url).then(|| RedirectFile::create(&std::env::temp_dir(), url));
        let file = file.transpose().map_err(|error| {
            format!("cannot write a file for the browser to the temporary folder ({error})")
        })?;
        let mut command = Command::new(program);
        match &file {
            Some(file) => command.arg(&file.0),
            None => command.arg(url),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        detach(&mut command);
        let child = command
            .spawn()
            .map_err(|error| format!("could not open a browser with `{program}` ({error})"))?;
        Ok(Launched { program, child, file })
    }

    /// Waits until the browser has had the time to read the URL.
    fn wait(mut self) -> Result<(), String> {
        let status = self.child.wait();
        // The exit status of Windows' explorer does not tell whether it has succeeded.
        if status.is_ok_and(|status| !status.success() && !cfg!(windows)) {
            return Err(format!("could not open a browser with `{}`", self.program));
        }
        if self.file.is_some() {
            std::thread::sleep(FILE_LIFETIME);
        }
        Ok(())
    }
}

/// A file that only this user can read, with a page that leads to a URL. The file is removed when
/// the value is dropped.
struct RedirectFile(PathBuf);

impl RedirectFile {
    fn create(folder: &Path, url: &str) -> io::Result<RedirectFile> {
        let name = format!("rookery-{:016x}.html", unpredictable());
        let path = folder.join(name);
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        let redirect = RedirectFile(path);
        write!(
            file,
            "<!DOCTYPE html>\n<meta name=\"referrer\" content=\"no-referrer\">\n\
             <meta http-equiv=\"refresh\" content=\"0;url={url}\">\n<title>Rookery</title>\n"
        )?;
        Ok(redirect)
    }
}

impl Drop for RedirectFile {
    fn drop(&mut self) {
        // The temporary folder may have been cleaned up.
        let _ = std::fs::remove_file(&self.0);
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
/// with "the server". `has` returns true if the environment variable with this name is set.
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
    use crate::command_line::tests::served;

    #[test]
    fn a_file_that_only_this_user_can_read_leads_to_a_url_with_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let url = "http://127.0.0.1:9100/live/?token=5f3a";
        let file = RedirectFile::create(folder.path(), url).unwrap();
        let text = std::fs::read_to_string(&file.0).unwrap();
        assert!(text.contains(&format!("content=\"0;url={url}\"")), "{text}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(&file.0).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(has_token(url) && !has_token("http://127.0.0.1:8000"));
    }

    #[test]
    fn a_browser_that_nobody_asked_for_is_opened_if_possible() {
        let of = |words: &[&str]| Opening::of(&served(words).all);
        assert_eq!(of(&["serve", "a"]), Opening::No);
        assert_eq!(of(&["serve", "a", "--open"]), Opening::Requested);
        assert_eq!(of(&["dev", "a"]), Opening::IfPossible);
        assert_eq!(of(&["dev", "a", "--open"]), Opening::Requested);
        assert_eq!(of(&["dev", "a", "--open=no"]), Opening::No);
    }

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
