//! A folder with `index.html`, served by this process: no R is needed, nor started.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_server::static_files::{StaticFiles, StaticPath};
use rookery_server::tls::Tls;
use rookery_server::{Listener, Notice, Server, Site, SpoolFolder};

use crate::address::Address;
use crate::command_line::Serve;
use crate::failure::{Failure, say, tell};
use crate::log::LogTo;
use crate::memory;
use crate::ports;
use crate::settings::AskedTls;
use crate::signals::Signals;
use crate::target::Target;
use crate::tls::{self, Opened};

/// How long replies that are being sent are waited for after the first signal: `docker stop` kills after 10 s, and stopping
/// takes one of them.
const DRAIN_TIME: Duration = Duration::from_millis(8500);
/// How often it is looked whether they have been sent.
const LOOK_TIME: Duration = Duration::from_millis(20);

/// Serves until a signal ends it.
///
/// # Errors
/// When the address cannot be had, or a file that was named not be used.
pub(crate) fn serve(
    target: &Target,
    asked: &Serve,
    address: &Address,
    beside: Option<&Address>,
    log: &LogTo,
) -> Result<(), Failure> {
    memory::without_huge_pages();
    let signals = Signals::watch().map_err(|error| {
        Failure::Serving(format!("The thread that waits for signals cannot be started: {error}."))
    })?;
    let opened = asked.tls.as_ref().map(tls::open).transpose()?;
    let tls = opened.as_ref().map(|opened| opened.tls.clone());
    let files = StaticFiles::new();
    let folder = StaticPath { path: target.path.clone(), ..StaticPath::default() };
    files.set([("/".to_owned(), folder)]).map_err(|error| Failure::Serving(format!("{error}.")))?;
    let settings = asked.settings.with_environment()?;
    let server = Server::of_files(settings.config);
    let log = log.open(asked.format)?;
    server.set_access_log(log.clone());
    let spool = Arc::new(SpoolFolder::new(settings.spool_folder, tell));
    let site = Site {
        files,
        tls: tls.clone(),
        spool,
        proxies: settings.proxies,
        proxy_protocol: settings.proxy_protocol,
        notice: Notice(tell),
        ..Site::default()
    };
    let (listeners, port) = ports::listen(&server, address, beside, site)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    say(&format!(
        "rookery {}: site in {}\nServing on {} (Ctrl-C stops)",
        env!("CARGO_PKG_VERSION"),
        target.path.display(),
        address.shown(port, scheme, asked.tls.as_ref().and_then(AskedTls::domain))
    ));
    let keeper = opened.as_ref().map_or(Ok(None), Opened::keep)?;
    wait(&signals, tls.as_ref());
    drop(keeper);
    drain(&listeners, &signals);
    listeners.into_iter().for_each(Listener::stop);
    server.set_access_log(None);
    if let Some(log) = log {
        log.close();
    }
    Ok(())
}

/// Waits for the signal that ends it; a SIGHUP that was sent to a server of HTTPS has certificates read anew.
fn wait(signals: &Signals, tls: Option<&Tls>) {
    while let Some(caught) = signals.next() {
        let Some(tls) = tls.filter(|_| caught.asks_for_reload()) else { return };
        tls::reload(tls);
    }
}

/// Waits until what is being sent has been sent, or time is up. A second signal ends the process.
fn drain(listeners: &[Listener], signals: &Signals) {
    ports::drain(listeners);
    let until = Instant::now() + DRAIN_TIME;
    while ports::connections(listeners) > 0 && Instant::now() < until {
        if let Some(caught) = signals.next_within(LOOK_TIME) {
            caught.die();
        }
    }
}
