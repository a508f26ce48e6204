//! Requests that wait within the application, and whose clients send a FIN.

use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rookery_exchange::{Command, Event, Exchange, IoWaker, Peer, PushError, WakeUp};
use rookery_server::{
    Application, Config, Limits, Listener, ListenerConfig, Server, TrustedProxies,
};
use rookery_test_support::tls::client_config;

use crate::support::tls::{settings, site};
use crate::support::{Client, has_heard, hello, wait_until};

/// The state that an application and its test share.
#[derive(Default)]
struct Held {
    #[expect(clippy::vec_box, reason = "they go back as they came")]
    exchanges: Mutex<Vec<Box<Exchange>>>,
    waker: Mutex<Option<Arc<dyn IoWaker>>>,
    /// Whether new requests wait.
    waits: AtomicBool,
    drops: AtomicBool,
    /// Whether requests of disconnected clients are returned.
    returns: AtomicBool,
    /// The number of requests that have come.
    count: AtomicUsize,
    answers: AtomicBool,
    left: AtomicUsize,
}

impl Held {
    fn until_it_has(&self, count: usize) {
        wait_until("it has come", || self.exchanges.lock().unwrap().len() == count);
    }

    fn answer(&self) {
        self.answers.store(true, Ordering::Relaxed);
        self.waker.lock().unwrap().as_ref().unwrap().wake();
    }
}

/// An application that keeps all requests until it is told to respond.
struct Holding(Arc<Held>);

impl Application for Holding {
    fn handle_event(&self, _: Peer, event: Event) -> Result<WakeUp, PushError> {
        if let Event::Request(exchange) = event {
            exchange.set_waiting(self.0.waits.load(Ordering::Relaxed));
            self.0.exchanges.lock().unwrap().push(exchange);
            self.0.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(WakeUp::NotNeeded)
    }

    fn drops_half_closed(&self) -> bool {
        self.0.drops.load(Ordering::Relaxed)
    }

    fn on_client_disconnect(&self) {
        self.0.left.fetch_add(1, Ordering::Relaxed);
    }

    fn take_commands(&self, commands: &mut VecDeque<Command>) {
        if self.0.returns.load(Ordering::Relaxed) {
            let mut exchanges = self.0.exchanges.lock().unwrap();
            let (disconnected, others): (Vec<_>, Vec<_>) =
                exchanges.drain(..).partition(|it| it.is_client_disconnected());
            *exchanges = others;
            commands.extend(disconnected.into_iter().map(Command::Respond));
        }
        if self.0.answers.swap(false, Ordering::Relaxed) {
            for mut exchange in self.0.exchanges.lock().unwrap().drain(..) {
                hello(&mut exchange);
                commands.push_back(Command::Respond(exchange));
            }
        }
    }

    fn events_taken(&self) -> u64 {
        0
    }

    fn prepare_sleep(&self, _is_slow: bool) -> bool {
        !self.0.answers.load(Ordering::Relaxed)
    }
}

struct Fixture {
    held: Arc<Held>,
    address: SocketAddr,
    _listener: Listener,
    server: Server,
}

impl Fixture {
    fn new(site: ListenerConfig, waits: bool, drops: bool) -> Fixture {
        Fixture::with(Config::default(), site, waits, drops)
    }

    fn with(config: Config, site: ListenerConfig, waits: bool, drops: bool) -> Fixture {
        let held = Arc::new(Held { waits: waits.into(), drops: drops.into(), ..Held::default() });
        let theirs = Arc::clone(&held);
        let server = Server::with_application(
            config,
            Arc::new(move |waker| {
                *theirs.waker.lock().unwrap() = Some(waker);
                Box::new(Holding(Arc::clone(&theirs)))
            }),
        );
        let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        Fixture { held, address: listener.local_addr().unwrap(), _listener: listener, server }
    }

    fn secure(&self) -> Client {
        Client::connect_tls(self.address, &Arc::new(client_config(None)), "localhost")
            .expect("a handshake")
    }
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Returns the ways in which a client may end: by a TCP FIN only, which the system of a client that
/// crashed sends as well, and by a TLS close notification with and without a FIN.
fn ends() -> [fn(&mut Client); 3] {
    fn notify(client: &mut Client) {
        let tls = client.tls.as_mut().unwrap();
        tls.send_close_notify();
        tls.write_tls(&mut client.socket).unwrap();
    }
    [
        |client| client.socket.shutdown(Shutdown::Write).unwrap(),
        notify,
        |client| {
            notify(client);
            client.socket.shutdown(Shutdown::Write).unwrap();
        },
    ]
}

#[test]
fn over_tls_as_well_who_waits_is_gone_and_who_is_served_is_answered() {
    let secure = || site(settings(&["localhost"]));
    let dropping = Fixture::new(secure(), true, true);
    for (at, end) in ends().into_iter().enumerate() {
        let mut client = dropping.secure();
        client.send(REQUEST);
        dropping.held.until_it_has(at + 1);
        end(&mut client);
        assert!(client.wait_for_close(), "{at}");
        wait_until("it is told", || dropping.held.left.load(Ordering::Relaxed) == at + 1);
        let held = dropping.held.exchanges.lock().unwrap();
        assert!(
            held[at].is_client_disconnected()
                && held.iter().filter(|exchange| exchange.is_client_disconnected()).count()
                    == at + 1
        );
    }
    for (waits, drops) in [(false, true), (true, false)] {
        let keeping = Fixture::new(secure(), waits, drops);
        for end in ends() {
            let mut client = keeping.secure();
            client.send(REQUEST);
            keeping.held.until_it_has(1);
            end(&mut client);
            // The server checks the connection several times meanwhile.
            keeping.server.advance_clock(Duration::from_secs(3));
            keeping.held.answer();
            assert_eq!(client.response().unwrap().body, b"Hello, World!", "{waits} {drops}");
        }
        assert_eq!(keeping.held.left.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_waiting_request_is_evicted_for_the_memory_of_another_client_and_its_connection_is_kept() {
    let limits =
        Limits { max_client_memory: Some(20 << 20), max_connections: 100, ..Limits::default() };
    let proxies = TrustedProxies::parse(["127.0.0.1"]).unwrap();
    let site = ListenerConfig { proxies, ..ListenerConfig::default() };
    let fixture = Fixture::with(Config { limits, ..Config::default() }, site, true, false);
    fixture.held.returns.store(true, Ordering::Relaxed);
    let mut count = 0;
    let mut send = |address: &str, len: usize| {
        let mut client = Client::connect(fixture.address);
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n\
             Content-Length: {len}\r\n\r\n"
        ));
        client.send(vec![b'x'; len]);
        count += 1;
        wait_until("it has come", || fixture.held.count.load(Ordering::Relaxed) == count);
        client
    };
    // There are 6 MiB for what clients send.
    let greedy: Vec<Client> = (0..5).map(|_| send("192.0.2.1", 1_000_000)).collect();
    let mut honest: Vec<Client> = (0..2).map(|_| send("192.0.2.2", 1_000_000)).collect();
    let (evicted, mut kept): (Vec<_>, Vec<_>) = greedy.into_iter().partition(has_heard);
    assert!((1..3).contains(&evicted.len()), "{}", evicted.len());
    for mut client in evicted {
        let response = client.response().unwrap();
        assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
        assert_eq!(response.header("connection"), None);
        let count = fixture.held.count.load(Ordering::Relaxed);
        client.send(REQUEST);
        wait_until("it has come", || fixture.held.count.load(Ordering::Relaxed) > count);
        honest.push(client);
    }
    fixture.held.answer();
    for client in honest.iter_mut().chain(&mut kept) {
        assert_eq!(client.response().unwrap().status, 200);
    }
}
