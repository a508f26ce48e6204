//! Serving an app that is being developed (`rookery dev`): which addresses are allowed, how files
//! are watched, and which messages the open pages get.

#[cfg(unix)]
use std::ffi::CStr;
use std::sync::Arc;

use rookery_development::{
    Change, FileWatcher, IgnoreRules, LiveReload, WatchedFiles, development_application,
};
use rookery_server::{MakeApplication, PageScript};
#[cfg(all(target_os = "linux", not(feature = "portable")))]
use rookery_settings::EDITORS;
use rookery_settings::Settings;
use rookery_status::AccessToken;

use crate::app_detection::Target;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::process::start_thread;
use crate::settings::serve_settings::ServeSettings;
use crate::stderr::log_line;

/// The environment variables by which hosted development environments are recognized. Their proxies
/// reach the app at any address, and ask for a login.
const HOSTED: [&str; 7] = [
    "CODESPACES",
    "GITPOD_WORKSPACE_ID",
    "CODER",
    "RS_SERVER_URL",
    "RS_SESSION_URL",
    "JUPYTERHUB_USER",
    "CLOUD_SHELL",
];

/// The parts of a server that exist only during development.
#[derive(Debug, Clone)]
pub(crate) struct Development {
    pub(crate) live: Arc<LiveReload>,
    token: AccessToken,
    /// The host names that requests may be for, or `None` if all are accepted.
    hosts: Option<Arc<[String]>>,
}

impl Development {
    /// Returns the parts of a server under development, or `None` if the app is not being
    /// developed.
    ///
    /// # Errors
    /// Fails if other machines could reach the address and this is not allowed, since the server
    /// shows source code.
    pub(crate) fn of(
        serve: &ServeSettings,
        address: &Address,
    ) -> Result<Option<Development>, Failure> {
        if !serve.all.is_dev() {
            return Ok(None);
        }
        if is_reachable(address) && !serve.all.flag("dev_anywhere") && hosted(is_set).is_none() {
            return Err(Failure::CommandLine(format!(
                "`rookery dev` shows source code, and other machines can reach {}: leave out \
                 `--host`, or allow it with `--dev-anywhere`.",
                serve.host
            )));
        }
        let token = AccessToken::generate("/")
            .map_err(|error| Failure::Unavailable(format!("No token can be made: {error}.")))?;
        Ok(Some(Development { live: LiveReload::new(), token, hosts: hosts(serve, address) }))
    }

    /// Returns the host names that requests may be for, in addition to `localhost` and IP
    /// addresses. Returns `None` if all names are accepted.
    pub(crate) fn hosts(&self) -> Option<Arc<[String]>> {
        self.hosts.clone()
    }

    /// Returns the application of the server, in front of `inner`.
    pub(crate) fn application(&self, inner: MakeApplication) -> MakeApplication {
        development_application(inner, Arc::clone(&self.live), self.token.clone())
    }

    /// Returns the script that the server inserts into pages.
    pub(crate) fn script(&self) -> Arc<PageScript> {
        self.live.script()
    }

    /// Returns the URL that gives a browser access to the details of errors.
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    pub(crate) fn url(&self, base: Option<&str>) -> Option<String> {
        base.map(|base| self.token.url(base))
    }
}

/// Returns the form of the URLs by which a link opens a file in an editor, with `{file}` and
/// `{line}`. Returns `None` for no editor. `setting` is the value of the setting `editor`.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) fn editor_url(setting: Option<&str>) -> Option<String> {
    editor_url_in(setting, |name| std::env::var(name).ok())
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
fn editor_url_in(
    setting: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let is = |name, value: &str| variable(name).is_some_and(|own| own == value);
    let name = match setting {
        Some(name) => name,
        // The browser is on another machine, whose editor does not have the files.
        None if variable("SSH_CONNECTION").is_some() => return None,
        None if hosted(|name| variable(name).is_some()).is_some() => return None,
        None if is("POSITRON", "1") => "positron",
        None if variable("CURSOR_TRACE_ID").is_some() => "cursor",
        None if is("TERM_PROGRAM", "vscode") => "vscode",
        None if is("ZED_TERM", "true") => "zed",
        None if is("TERMINAL_EMULATOR", "JetBrains-JediTerm") => "idea",
        None => return None,
    };
    let known = EDITORS.iter().find(|(own, _)| *own == name).map(|(_, url)| *url);
    known.or(Some(name).filter(|url| url.contains("{file}"))).map(str::to_owned)
}

/// Starts the thread that watches the files of a static site. `on_change` is called before the open
/// pages are reloaded.
pub(crate) fn watch_site(
    target: &Target,
    settings: &Settings,
    live: Arc<LiveReload>,
    on_change: impl Fn() + Send + 'static,
) -> Result<(), Failure> {
    watch(
        target,
        settings,
        move |change| {
            on_change();
            match change {
                Change::Styles(names) => live.on_styles_changed(&names),
                Change::Page | Change::App { .. } => live.on_page_changed(),
            }
            true
        },
        true,
    )
}

/// Starts the thread that calls `on_change` whenever files of the app have changed, until
/// `on_change` returns false.
pub(crate) fn watch(
    target: &Target,
    settings: &Settings,
    on_change: impl Fn(Change) -> bool + Send + 'static,
    is_site: bool,
) -> Result<(), Failure> {
    let (target, folder) = (target.clone(), target.folder.clone());
    let patterns = settings.list("ignore");
    let ignored = IgnoreRules::new(patterns.iter().map(String::as_str));
    let files = WatchedFiles { ignored, is_site };
    let mut watcher = FileWatcher::new(folder, move || target.folder_now(), files, log_line);
    start_thread("rookery-changes", move || {
        loop {
            let changed = watcher.wait_for_changes();
            let Some(first) = changed.first() else { continue };
            let others = match changed.len() {
                1 => " has".to_owned(),
                2 => " and another file have".to_owned(),
                count => format!(" and {} other files have", count - 1),
            };
            log_line(&format!("`{}`{others} changed", first.display()));
            let change = Change::of(&changed, is_site);
            if matches!(change, Change::App { .. }) {
                watcher.on_restart();
            }
            if !on_change(change) {
                return;
            }
        }
    })
}

/// Returns the host names of [`Development::hosts`]: those that the user has configured, and the
/// names of this machine if other machines can reach the address.
fn hosts(serve: &ServeSettings, address: &Address) -> Option<Arc<[String]>> {
    // Browsers reach neither a Unix socket nor a hosted environment by names that resolve to this
    // machine. Their proxies may use any name.
    if matches!(address, Address::Unix(_)) || hosted(is_set).is_some() {
        return None;
    }
    let mut hosts = serve.all.list("dev_hosts");
    hosts.extend(serve.all.list("domain"));
    if let Some(name) = machine_name().filter(|_| is_reachable(address)) {
        let short = name.split('.').next().unwrap_or_default().to_owned();
        // The name in multicast DNS (RFC 6762).
        hosts.push(format!("{short}.local"));
        hosts.extend([short, name]);
    }
    Some(hosts.into())
}

#[cfg(unix)]
fn machine_name() -> Option<String> {
    let mut name = [0u8; 256];
    // SAFETY: the buffer has the length that is passed.
    let status = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let name = CStr::from_bytes_until_nul(&name).ok().filter(|_| status == 0)?;
    name.to_str().ok().filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(windows)]
fn machine_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok().filter(|name| !name.is_empty())
}

fn is_reachable(address: &Address) -> bool {
    match address {
        Address::Tcp { socket, .. } => !socket.ip().to_canonical().is_loopback(),
        // The permissions of its file protect a Unix socket.
        Address::Unix(_) => false,
    }
}

/// Returns the variable by which a hosted development environment is recognized.
fn hosted(is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    HOSTED.into_iter().find(|name| is_set(name))
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::tests::served;
    use crate::failure::message_of;

    #[test]
    fn addresses_that_other_machines_reach_are_refused() {
        let of = |words: &[&str]| {
            let serve = served(&[&["dev", "a"], words].concat());
            let address = Address::parse(&serve.host, serve.port).unwrap();
            assert!(hosted(is_set).is_none(), "this test does not run in a hosted environment");
            Development::of(&serve, &address)
        };
        for host in ["127.0.0.1", "127.1.2.3", "::1", "localhost", "unix:/tmp/s"] {
            assert!(of(&["--host", host]).unwrap().is_some(), "{host}");
        }
        for host in ["0.0.0.0", "::", "192.0.2.1"] {
            let message = message_of(of(&["--host", host]));
            assert!(message.contains("`--dev-anywhere`") && message.contains(host), "{message}");
            assert!(of(&["--host", host, "--dev-anywhere"]).unwrap().is_some());
        }
        let serve = served(&["serve", "a", "--host", "0.0.0.0"]);
        let address = Address::parse(&serve.host, serve.port).unwrap();
        assert!(Development::of(&serve, &address).unwrap().is_none());
        assert_eq!(hosted(|name| name == "CODESPACES"), Some("CODESPACES"));
    }

    #[test]
    fn the_machine_has_a_name_only_where_other_machines_reach_it() {
        let hosts = |words: &[&str]| {
            let serve = served(&[&["dev", "a"], words].concat());
            let address = Address::parse(&serve.host, serve.port).unwrap();
            hosts(&serve, &address).map(|hosts| hosts.to_vec())
        };
        let own = machine_name().unwrap();
        assert_eq!(hosts(&[]), Some(vec![]));
        assert_eq!(hosts(&["--dev-hosts", "a.example,*.b"]).unwrap(), ["a.example", "*.b"]);
        let public = hosts(&["--host", "0.0.0.0", "--dev-anywhere", "--dev-hosts", "c"]).unwrap();
        assert_eq!((&public[0], &public[3]), (&"c".to_owned(), &own));
        assert!(own.starts_with(&public[2]) && public[1] == format!("{}.local", public[2]));
        assert_eq!(hosts(&["--host", "unix:/tmp/s"]), None);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    fn the_editor_is_named_or_found() {
        let url = |setting, variables: &[(&str, &str)]| {
            editor_url_in(setting, |name| {
                let mut found = variables.iter().filter(|(own, _)| *own == name);
                found.next().map(|(_, value)| (*value).to_owned())
            })
        };
        let vscode = Some("vscode://file{file}:{line}".to_owned());
        let here = ("TERM_PROGRAM", "vscode");
        assert_eq!(url(Some("vscode"), &[]), vscode);
        assert_eq!(url(None, &[here]), vscode);
        assert_eq!(url(None, &[here, ("SSH_CONNECTION", "a")]), None);
        assert_eq!(url(None, &[here, ("CODESPACES", "true")]), None);
        assert_eq!(url(Some("none"), &[here]), None);
        assert_eq!(url(Some("x:{file}"), &[here]).as_deref(), Some("x:{file}"));
        assert_eq!(url(None, &[]), None);
    }
}
