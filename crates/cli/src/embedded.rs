//! What an R session that serves an app itself needs of this program: the check of an address, its
//! URL, and the start-up screen.

use std::io;
use std::net::TcpListener;

use rookery_server::network_address;
use rookery_server::output::is_coloured_if;
use rookery_status::AdminAddress;

use crate::listen::address::Address;
use crate::listen::listeners::network_url;
use crate::terminal::startup_screen::{StartupScreen, live_page};

/// The reason why a server cannot listen on an address.
#[derive(Debug)]
pub struct AddressError {
    /// Whether another process uses the address.
    pub is_in_use: bool,
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
    let failed = |is_in_use, reason: String, message: String| AddressError {
        is_in_use,
        reason,
        // R names arguments, not options.
        message: message.replace("--port ", "port = "),
    };
    let address = Address::parse(host, port)
        .map_err(|failure| failed(false, failure.message(), failure.message()))?;
    address.try_to_bind().map_err(|error| {
        let is_in_use = error.kind() == io::ErrorKind::AddrInUse;
        failed(is_in_use, error.to_string(), address.bind_failure(&error).message())
    })?;
    Ok(match &address {
        Address::Tcp { socket, .. } if port == 0 => TcpListener::bind(socket)
            .and_then(|listener| listener.local_addr())
            .map_or(port, |address| address.port()),
        _ => port,
    })
}

/// Returns the URL of a server, or the path of its Unix socket. `domain` is the public name of the
/// host, if it has one.
pub fn server_url(host: &str, port: u16, scheme: &str, domain: Option<&str>) -> String {
    Address::parse(host, port)
        .map_or_else(|_| host.to_owned(), |it| it.url(Some(port), scheme, domain).to_string())
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
    /// Returns the text of the start-up screen, with colours if `is_coloured`. The token of the live
    /// page is shown only to a person (`is_terminal`), and not in a log.
    pub fn start_screen(&self, is_coloured: bool, is_terminal: bool) -> String {
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
            live_page: self.live_page.clone().map(|url| live_page(url, is_terminal)),
            reloads: false,
            errors: None,
        };
        screen.text(None, is_coloured)
    }
}

/// Returns true if text on an output should have colour. `is_terminal` says whether the output is a
/// terminal, which `NO_COLOR` and `CLICOLOR_FORCE` override.
pub fn is_coloured(is_terminal: bool) -> bool {
    is_coloured_if(is_terminal)
}
