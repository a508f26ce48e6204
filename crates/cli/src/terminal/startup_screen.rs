//! The start-up screen, which shows what is served, at which address, and how to stop the server.

use rookery_server::network_address;
use rookery_server::tls::DevelopmentCertificate;
use rookery_status::{AdminAddress, format_count};

use crate::app_detection::Target;
use crate::listen::listeners::Listeners;
use crate::terminal::shortcuts;

/// The content of the start-up screen, which shows what is served and at which address.
///
/// Programs may read the address from the third word of the line that begins with `Serving on`. On
/// a terminal, colour codes surround the address.
#[derive(Debug, Clone)]
pub(crate) struct StartupScreen {
    /// The file of the app, such as `app.R`. It is shown unless R has announced the kind of app.
    pub(crate) app_file: String,
    /// The folder of the app. The text is empty if the app has no folder.
    pub(crate) folder: String,
    /// The number of workers (R processes); `None` for a static site.
    pub(crate) workers: Option<u32>,
    /// The URL of the server, or the path of its Unix socket.
    pub(crate) address: String,
    /// The URLs by which other machines reach the server.
    pub(crate) network: Vec<String>,
    /// The self-signed certificate of `--tls dev`, if the server uses it.
    pub(crate) development: Option<DevelopmentCertificate>,
    pub(crate) admin: Option<AdminAddress>,
    /// The URL of the live page, with its access token, or how to open the page.
    pub(crate) live_page: Option<String>,
    /// Whether the workers are restarted when a file of the app changes.
    pub(crate) reloads: bool,
    /// The URL that gives a browser access to the details of errors, during development.
    pub(crate) errors: Option<String>,
    /// Whether the program accepts the shortcuts of `rookery dev`.
    pub(crate) has_shortcuts: bool,
}

impl StartupScreen {
    /// Returns the content of the start-up screen for an app or a static site and the listeners
    /// that serve it.
    pub(crate) fn of(target: &Target, listeners: &Listeners) -> StartupScreen {
        StartupScreen {
            app_file: target.app_file().unwrap_or_default(),
            folder: target.show(&target.folder),
            workers: None,
            address: listeners.addresses.clone(),
            network: listeners.network_urls(network_address()),
            development: None,
            admin: None,
            live_page: None,
            reloads: false,
            errors: None,
            has_shortcuts: false,
        }
    }

    /// Returns the text of the start-up screen, with escape sequences for colour if `is_coloured`.
    /// `app` is the kind of app that R has announced, such as `Shiny app (app.R)`.
    pub(crate) fn text(&self, app: Option<&str>, is_coloured: bool) -> String {
        let pen = Pen { is_coloured };
        let folder = match self.folder.as_str() {
            "" => String::new(),
            folder => format!(" in {folder}"),
        };
        let workers =
            self.workers.map(|count| format!(" with {}", format_count(count as usize, "worker")));
        let mut lines = vec![
            format!(
                "{} {}: {}{}{}",
                pen.bold("rookery"),
                env!("CARGO_PKG_VERSION"),
                app.unwrap_or(&self.app_file),
                folder,
                workers.unwrap_or_default()
            ),
            format!("Serving on {} {}", pen.address(&self.address), pen.dim("(Ctrl-C stops)")),
        ];
        let mut detail = |label: &str, value: &str| {
            let label = if label.is_empty() {
                " ".repeat(12)
            } else {
                pen.dim(&format!("{:<12}", format!("{label}:")))
            };
            lines.push(format!("  {label} {value}"));
        };
        for address in &self.network {
            detail("Network", &pen.address(address));
        }
        if let Some(made) = &self.development {
            let file = made.file.display().to_string();
            let what = if made.is_new { "Created a certificate" } else { "The certificate" };
            detail("HTTPS", &format!("{what} for localhost: {file}"));
            detail(
                "",
                &format!(
                    "SHA-256 fingerprint, as the browser shows it: {}",
                    with_colons(&made.fingerprint)
                ),
            );
            for line in trust(&file) {
                detail("", &line);
            }
        }
        match &self.admin {
            Some(AdminAddress::Tcp(address)) => {
                detail("Admin", &pen.address(&format!("http://{address}")));
            }
            Some(AdminAddress::Unix(path)) => detail("Admin", &format!("unix:{}", path.display())),
            None => {}
        }
        if let Some(url) = &self.live_page {
            detail("Live page", &pen.address(url));
        }
        if self.reloads {
            detail("Reload", "when a file of the app changes");
        }
        if let Some(url) = &self.errors {
            detail("Errors", &format!("are shown with source code at {}", pen.address(url)));
        }
        if self.has_shortcuts {
            detail("Keys", shortcuts::SUMMARY);
        }
        lines.join("\n")
    }
}

/// Returns what the start-up screen shows for the live page with this URL. The URL is shown only on
/// a terminal, and not in a log, because it contains a token.
#[cfg_attr(
    any(not(target_os = "linux"), feature = "portable"),
    allow(dead_code, reason = "there the R process shows the screen")
)]
pub(crate) fn live_page(url: String, is_terminal: bool) -> String {
    if is_terminal { url } else { format!("`rookery live {}` opens it", std::process::id()) }
}

/// Returns instructions for the user to make browsers trust the development certificate, which is
/// stored in `file`.
fn trust(file: &str) -> [String; 3] {
    let file = shell_word(file);
    let browsers = if cfg!(target_os = "macos") {
        format!("security add-trusted-cert -k ~/Library/Keychains/login.keychain-db {file}")
    } else {
        format!("certutil -A -a -d sql:$HOME/.pki/nssdb -t P,, -n rookery -i {file}")
    };
    [
        "A browser warns once: compare the fingerprint and accept, or trust the certificate:"
            .to_owned(),
        browsers,
        format!("curl --cacert {file} https://localhost:..."),
    ]
}

/// Returns a text as one word for a shell. Quotes it if necessary.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte));
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Returns a certificate's fingerprint in the form that browsers show, `AB:CD:...`.
fn with_colons(fingerprint: &str) -> String {
    let upper = fingerprint.to_ascii_uppercase();
    let pairs: Vec<&str> =
        (0..upper.len()).step_by(2).filter_map(|at| upper.get(at..at + 2)).collect();
    pairs.join(":")
}

/// A writer that adds colour codes to text for the terminal, unless colour is turned off.
#[derive(Debug, Clone, Copy)]
struct Pen {
    is_coloured: bool,
}

impl Pen {
    fn paint(self, code: &str, text: &str) -> String {
        if self.is_coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn address(self, text: &str) -> String {
        self.paint("1;36", text)
    }
}

/// Returns true if text on standard error should have colour. `NO_COLOR` turns colour off, and
/// otherwise `CLICOLOR_FORCE` turns it on. Without these variables, text has colour if standard
/// error is a terminal.
pub(crate) fn is_coloured() -> bool {
    rookery_server::output::is_coloured(&std::io::stderr())
}

#[cfg(test)]
mod tests;
