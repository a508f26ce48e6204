//! A client of the admin listener.

use std::sync::Arc;

use rookery_server::{Config, Listener, ListenerConfig, Server};
use rookery_status::{AdminHandler, ServerInfo};
use rookery_supervisor::{BackendRegistry, ReadinessPolicy, SupervisorStatus};
use rookery_test_support::client::{Client, Response};
use serde_json::Value;

use crate::support::running_supervisor::Running;

/// The admin listener of a supervisor.
pub(crate) struct Admin {
    listener: Listener,
    _server: Server,
}

impl Admin {
    pub(crate) fn of(running: &Running) -> Admin {
        Admin::with(&running.registry, ReadinessPolicy::default())
    }

    pub(crate) fn of_registry(registry: &Arc<BackendRegistry>) -> Admin {
        Admin::with(registry, ReadinessPolicy::default())
    }

    pub(crate) fn with(registry: &Arc<BackendRegistry>, readiness: ReadinessPolicy) -> Admin {
        let about =
            ServerInfo { target: "/srv/app".into(), address: "http://127.0.0.1:8000".into() };
        let answers = AdminHandler::new(Arc::new(SupervisorStatus::new(
            Arc::clone(registry),
            about,
            readiness,
        )));
        let server =
            Server::with_closure(Config::default(), move |exchange| answers.answer(exchange));
        let listener =
            server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
        Admin { listener, _server: server }
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        let mut client = Client::connect(self.listener.local_addr().unwrap());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        client.response_to("GET").unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.get("/status").body).unwrap()
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
