//! The server in front of fake workers, and its clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::Share;
use rookery_server::access_log::{AccessLog, OwnedRecord};
use rookery_server::{Config, Listener, ListenerConfig, Server};
use rookery_supervisor::{BackendRegistry, PoolLimits, pool};
use rookery_test_support::client::{Client, Response};
use rookery_test_support::wait_until;

use crate::support::admin::Admin;
use crate::support::fake_worker::FakeWorker;

/// A server in front of fake workers, with the pool as its application.
pub(crate) struct Frontend {
    pub(crate) registry: Arc<BackendRegistry>,
    pub(crate) workers: Vec<FakeWorker>,
    pub(crate) address: SocketAddr,
    epochs: u64,
    pub(crate) listener: Option<Listener>,
    server: Server,
}

impl Frontend {
    pub(crate) fn new(workers: u32) -> Frontend {
        Frontend::with(workers, PoolLimits::default(), Config::default())
    }

    pub(crate) fn with(workers: u32, limits: PoolLimits, config: Config) -> Frontend {
        let registry = Arc::new(BackendRegistry::default());
        let server = Server::with_application(config, pool(Arc::clone(&registry), limits));
        let site = ListenerConfig {
            files: registry.files(),
            sees_heads: true,
            ..ListenerConfig::default()
        };
        let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        let mut front = Frontend {
            registry,
            workers: Vec::new(),
            address: listener.local_addr().unwrap(),
            epochs: 0,
            listener: Some(listener),
            server,
        };
        for slot in 0..workers {
            front.join(slot);
        }
        front
    }

    /// Returns the number of bytes that are charged to a share of the memory budget.
    pub(crate) fn used(&self, share: Share) -> usize {
        self.server.budget().used(share)
    }

    /// Starts to record the lines of the access log, as values.
    pub(crate) fn log(&self) -> Log {
        let log = Arc::new(AccessLog::read());
        self.server.set_access_log(Some(Arc::clone(&log)));
        Log(log)
    }

    /// Adds a worker.
    pub(crate) fn join(&mut self, slot: u32) {
        self.epochs += 1;
        let worker = FakeWorker::start(slot, self.epochs);
        self.registry.add(&worker.backend);
        self.workers.push(worker);
    }

    /// Adds a worker whose application sees heads before bodies.
    pub(crate) fn join_seeing_heads(&mut self, slot: u32) {
        self.epochs += 1;
        let worker = FakeWorker::start_seeing_heads(slot, self.epochs);
        self.registry.add(&worker.backend);
        self.workers.push(worker);
    }

    /// Kills a worker, and removes it from the registry.
    pub(crate) fn kill(&mut self, at: usize) {
        let mut worker = self.workers.remove(at);
        worker.die();
        self.registry.remove(&worker.backend);
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Advances the clock by which the server measures time limits.
    pub(crate) fn advance(&self, time: Duration) {
        self.server.advance_clock(time);
    }

    /// Waits until this number of requests wait for a worker.
    pub(crate) fn await_queue(&self, count: u32) {
        let admin = Admin::of_registry(&self.registry);
        wait_until("so many wait", || {
            admin.metric("rookery_queue_length") == Some(f64::from(count))
        });
    }

    /// Sends a request on a thread of its own.
    pub(crate) fn ask(&self, path: &str) -> std::thread::JoinHandle<Response> {
        let (mut client, path) = (self.connect(), path.to_owned());
        std::thread::spawn(move || client.get(&path))
    }
}

/// A recorded access log.
pub(crate) struct Log(Arc<AccessLog>);

impl Log {
    /// Waits for the next line and returns it.
    pub(crate) fn line(&self) -> OwnedRecord {
        let mut line = None;
        wait_until("a line of the log", || {
            line = self.0.take();
            line.is_some()
        });
        line.unwrap()
    }
}

/// Sends a GET request once all workers sleep again after the request before. The balancer prefers
/// workers that are awake.
pub(crate) fn get_at_rest(client: &mut Client, path: &str) -> Response {
    std::thread::sleep(Duration::from_millis(2));
    client.get(path)
}
