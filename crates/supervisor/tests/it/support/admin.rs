//! A client of the admin listener.

use std::sync::Arc;

use rookery_server::tls::{CertificatePair, Pem, Tls, TlsSettings};
use rookery_status::{AdminAddress, AdminHandler, AdminListener, ServerInfo};
use rookery_supervisor::{BackendRegistry, SupervisorStatus};
use rookery_test_support::client::{Client, Response};
use rookery_test_support::tls_file;
use serde_json::Value;

use crate::support::running_supervisor::Running;

/// The admin listener of a supervisor.
pub(crate) struct Admin(AdminListener);

impl Admin {
    pub(crate) fn of(running: &Running) -> Admin {
        Admin::of_registry(&running.registry)
    }

    pub(crate) fn of_registry(registry: &Arc<BackendRegistry>) -> Admin {
        let about =
            ServerInfo { target: "/srv/app".into(), address: "http://127.0.0.1:8000".into() };
        let mut status = SupervisorStatus::new(Arc::clone(registry), about);
        // With a certificate from an authority, so that its metrics are there.
        let [certificate, key] =
            ["localhost.pem", "localhost.key"].map(|name| Pem::File(tls_file(name)));
        let pairs = vec![CertificatePair { certificate, key }];
        status.tls =
            Some(Tls::new(TlsSettings { pairs, ..TlsSettings::default() }, |_| ()).unwrap());
        status.acme_failures = Some(Arc::default());
        let handler = AdminHandler::new(Arc::new(status)).unwrap();
        let at = AdminAddress::Tcp("127.0.0.1:0".parse().unwrap());
        Admin(AdminListener::start(handler, Some(&at)).unwrap())
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        let mut client = Client::connect(self.0.local_addr().unwrap());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        client.response_to("GET").unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.get("/status").body).unwrap()
    }

    /// Returns the last errors of all workers, as the live page shows them, the latest first.
    pub(crate) fn errors(&self) -> Vec<Value> {
        let mut client = Client::connect(self.0.local_addr().unwrap());
        let url = self.0.page_url().unwrap();
        let (_, query) = url.split_once('?').unwrap();
        client.send(format!("GET /live/?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let response = client.response_to("GET").unwrap();
        let cookie = response.header("set-cookie").unwrap().split(';').next().unwrap();
        let head = format!("Host: localhost\r\nCookie: {cookie}\r\n\r\n");
        let mut client = Client::connect(self.0.local_addr().unwrap());
        // With HTTP/1.0 the response is not chunked.
        client.send(format!("GET /live/events HTTP/1.0\r\n{head}"));
        let text = String::from_utf8(client.read_through(b"event: snapshot")).unwrap();
        let (_, data) = text.split_once("event: errors\ndata: ").unwrap();
        serde_json::from_str(data.lines().next().unwrap()).unwrap()
    }

    pub(crate) fn worker(&self, slot: usize) -> Value {
        self.json()["workers"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["slot"] == slot)
            .unwrap()
            .clone()
    }

    /// Returns the value of a metric, by its name and labels.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(line.parse().unwrap())
    }
}
