//! What an R session that serves an app itself needs of this program: the check of an address, its
//! URL, HTTPS, and the start-up screen.

use std::net::TcpListener;
use std::path::Path;

use rookery_acme::{Acme, BadSettings};
use rookery_server::network_address;
use rookery_server::output::is_coloured_if;
use rookery_settings::Settings;
use rookery_settings::table::with_argument_names;
use rookery_status::AdminAddress;

use crate::app_detection::not_found;
use crate::listen::address::Address;
use crate::listen::listeners::network_url;
use crate::serve::tls::{acme_settings, load_files};
use crate::settings::r_arguments::read_lines;
use crate::terminal::startup_screen::{StartupScreen, live_page};

/// The reason why a server cannot listen on an address.
#[derive(Debug)]
pub struct AddressError {
    /// The class of the condition that R raises.
    pub class: &'static str,
    /// The error of the system.
    pub reason: String,
    /// The message for people, which names the process that uses the address.
    pub message: String,
}

/// Checks that a server can listen on an address. `host` is an IP address or `unix:` and the path
/// of a socket. Returns the port, which the system chooses if `port` is 0.
///
/// # Errors
/// Fails if the address cannot be used.
pub fn check_address(host: &str, port: u16) -> Result<u16, AddressError> {
    let address = Address::parse(host, port).map_err(|failure| {
        let (class, message) = ("rookery_no_address", failure.message());
        AddressError { class, reason: message.clone(), message }
    })?;
    address.try_to_bind().map_err(|error| {
        let failure = address.bind_failure(&error);
        AddressError {
            class: failure.condition_class(),
            reason: error.to_string(),
            message: with_argument_names(&failure.message()),
        }
    })?;
    Ok(match &address {
        Address::Tcp { socket, .. } if port == 0 => TcpListener::bind(socket)
            .and_then(|listener| listener.local_addr())
            .map_or(port, |address| address.port()),
        _ => port,
    })
}

/// Returns the message about a path that does not exist. It suggests similar names, or says where a
/// symbolic link leads.
pub fn missing_path(path: &Path) -> String {
    not_found(path).message()
}

/// Returns the URL of a server, or the path of its Unix socket. `domain` is the public name of the
/// host, if it has one.
pub fn server_url(host: &str, port: u16, scheme: &str, domain: Option<&str>) -> String {
    Address::parse(host, port)
        .map_or_else(|_| host.to_owned(), |it| it.url(Some(port), scheme, domain).to_string())
}

pub use crate::serve::tls::TlsSetup;

/// Sets up HTTPS by the settings in lines `name=value`, in which a certificate or key may be given
/// as text. Also returns the port from which plaintext HTTP requests are redirected. `notice` is
/// called with each line to log.
///
/// # Errors
/// Fails with a message if a setting is wrong, or if a file cannot be used.
pub fn set_up_tls(lines: &str, notice: fn(&str)) -> Result<(TlsSetup, Option<u16>), String> {
    let settings = settings_of(lines)?;
    match load_files(&settings, Some(notice), Acme::prepare) {
        Ok(Some(setup)) => Ok((setup, settings.whole("redirect_from"))),
        Ok(None) => Err("there is no certificate".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks the settings of a certificate from an authority, in lines `name=value`, without
/// contacting the authority.
///
/// # Errors
/// Fails with a message if a setting is wrong.
pub fn check_acme(lines: &str) -> Result<(), String> {
    acme_settings(&settings_of(lines)?).validate().map(drop).map_err(|error| match error {
        BadSettings::Terms(_) => format!("{error} with `agree_tos = TRUE`"),
        error => error.to_string(),
    })
}

fn settings_of(lines: &str) -> Result<Settings, String> {
    let settings = Settings::combine(read_lines(lines)?.given);
    settings.check().map_err(|conflict| conflict.message.trim_end_matches('.').to_owned())?;
    Ok(settings)
}

/// The content of the start-up screen of an R session that serves an app itself.
#[derive(Debug)]
pub struct EmbeddedServer<'a> {
    /// The kind of app, such as `Shiny app (app.R)`.
    pub app: &'a str,
    /// The folder of the app; empty if the app is an object.
    pub folder: &'a str,
    /// The URL of the server, or the path of its Unix socket.
    pub url: &'a str,
    /// The address and port on which the server listens; `None` if clients find the server by
    /// another one.
    pub listens: Option<(&'a str, u16)>,
    /// The address of the admin listener, if there is one.
    pub admin: Option<AdminAddress>,
    /// The URL of the live page, with its access token.
    pub live_page: Option<String>,
}

impl EmbeddedServer<'_> {
    /// Returns the text of the start-up screen. `is_terminal` says whether it is for a terminal,
    /// which gets colours. The token of the live page is shown only to a person (`is_seen`), and
    /// not in a log.
    pub fn start_screen(&self, is_terminal: bool, is_seen: bool) -> String {
        let scheme = self.url.split_once("://").map_or("http", |(scheme, _)| scheme);
        let network =
            self.listens.and_then(|(host, port)| match Address::parse(host, port).ok()? {
                Address::Tcp { socket, .. } => network_url(scheme, socket, network_address()),
                Address::Unix(_) => None,
            });
        let screen = StartupScreen {
            app_file: self.app.to_owned(),
            folder: self.folder.to_owned(),
            workers: None,
            address: self.url.to_owned(),
            network: network.into_iter().collect(),
            development: None,
            admin: self.admin.clone(),
            live_page: self.live_page.clone().map(|url| live_page(url, is_seen)),
            reloads: false,
            errors: None,
            has_shortcuts: false,
        };
        screen.text(None, is_coloured_if(is_terminal))
    }
}
