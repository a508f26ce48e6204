//! A server with TLS.

use std::sync::Arc;

use rookery_exchange::Exchange;
use rookery_server::tls::{CertificatePair, Pem, Tls, TlsSettings};
use rookery_server::{Config, Limits, ListenerConfig};
use rookery_test_support::tls::client_config;
use rookery_test_support::tls_file;

use crate::support::{App, Client, echo};

pub(crate) fn pair(name: &str) -> CertificatePair {
    CertificatePair {
        certificate: Pem::File(tls_file(&format!("{name}.pem"))),
        key: Pem::File(tls_file(&format!("{name}.key"))),
    }
}

/// Returns settings with the certificates of these names.
pub(crate) fn settings(names: &[&str]) -> TlsSettings {
    TlsSettings { pairs: names.iter().map(|name| pair(name)).collect(), ..TlsSettings::default() }
}

pub(crate) fn site(settings: TlsSettings) -> ListenerConfig {
    ListenerConfig { tls: Some(Tls::new(settings, |_| ()).unwrap()), ..ListenerConfig::default() }
}

/// Starts an application for `https://localhost`.
pub(crate) fn app(limits: Limits, respond: impl FnMut(&mut Exchange) + Send + 'static) -> App {
    App::with(Config { limits, ..Config::default() }, site(settings(&["localhost"])), echo(respond))
}

impl App {
    /// Connects a client of `https://localhost`.
    pub(crate) fn secure(&self) -> Client {
        Client::connect_tls(self.address, &Arc::new(client_config(None)), "localhost")
            .expect("a handshake")
    }
}
