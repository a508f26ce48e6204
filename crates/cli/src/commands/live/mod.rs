//! The command `rookery live`, which opens the live page of a server in a browser. The command gets
//! access to the page over the Unix socket of the server.

mod bridge;

use std::ffi::OsString;
use std::io::{self, Write as _};

use rookery_status::AdminAddress;

use super::status::{self, find_server, request};
use crate::failure::Failure;
use crate::terminal::browser;

/// The arguments of `rookery live`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "rookery live [<app>, process id, or socket of --admin] [--no-open]",
    long_about = "Opens the live page of a running server in a browser. The server is found as by \
                  `rookery status`.\nIf the server has no `--admin` address with a port, the \
                  command passes the page on from the\nserver's Unix socket until Ctrl-C."
)]
pub(crate) struct LiveArgs {
    /// The selected server: the path of an app, a process id or an admin socket. `None` selects the
    /// only server of this user.
    #[arg(hide = true)]
    which: Option<OsString>,
    /// Print the address with its token, and open no browser.
    #[arg(long)]
    no_open: bool,
}

/// The path at which a server returns the URL of its live page.
const URL: &str = "/live/url";

/// Opens the live page of a server, or prints its URL. If a browser cannot connect to the server,
/// passes the page on until the process is ended.
///
/// # Errors
/// Fails if no server or more than one server matches, or if the server does not respond.
pub(crate) fn open(args: &LiveArgs) -> Result<(), Failure> {
    let socket = match find_server("rookery live", args.which.as_deref())? {
        AdminAddress::Unix(path) => path,
        AdminAddress::Tcp(address) => {
            return Err(Failure::CommandLine(format!(
                "`rookery live` reads the Unix socket of a server, and {address} is none. Name the \
                 server by its app, its process id or its socket."
            )));
        }
    };
    let unavailable =
        |error| Failure::Unavailable(format!("The live page cannot be opened: {error}."));
    let place = AdminAddress::Unix(socket.clone());
    let (status, body) = request(&place, "GET", URL).map_err(|error| {
        Failure::Unavailable(format!(
            "The live page cannot be opened, because the server at {} does not respond: {error}. \
             Check with `rookery status` which servers are running.",
            status::show(&place)
        ))
    })?;
    let url = String::from_utf8_lossy(&body);
    if status == 200 && url.starts_with("http://") {
        return show(url.trim_end(), !args.no_open).map_err(unavailable);
    }
    let bridge = bridge::Bridge::open(socket).map_err(unavailable)?;
    let url = bridge.url();
    let opens_browser = !args.no_open;
    crate::process::start_thread("rookery-bridge", move || bridge.run())?;
    show(&url, opens_browser).map_err(unavailable)?;
    crate::stderr::print_lines("The live page is passed on from the server's socket until Ctrl-C.");
    loop {
        std::thread::park();
    }
}

/// Opens the URL in a browser, or prints the URL if no browser can be opened or none is requested.
fn show(url: &str, opens_browser: bool) -> io::Result<()> {
    if opens_browser {
        match browser::open_and_wait(url) {
            Ok(()) => return Ok(()),
            Err(reason) => crate::stderr::print_lines(&format!("`rookery live` {reason}.")),
        }
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{url}")?;
    out.flush()
}
