//! Requests that wait within the application, and whose clients send a FIN.

use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rookery_exchange::{Command, Event, Exchange, IoWaker, PushError, WakeUp};
use rookery_server::{Application, Config, Listener, ListenerConfig, Server};
use rookery_test_support::tls::client_config;

use crate::support::tls::{settings, site};
use crate::support::{Client, hello, wait_until};

/// The state that an application and its test share.
#[derive(Default)]
struct Held {
    #[expect(clippy::vec_box, reason = "they go back as they came")]
    exchanges: Mutex<Vec<Box<Exchange>>>,
    waker: Mutex<Option<Arc<dyn IoWaker>>>,
    /// Whether new requests wait.
    waits: AtomicBool,
    drops: AtomicBool,
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
    fn handle_event(&self, event: Event) -> Result<WakeUp, PushError> {
        if let Event::Request(exchange) = event {
            exchange.set_waiting(self.0.waits.load(Ordering::Relaxed));
            self.0.exchanges.lock().unwrap().push(exchange);
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
        let held = Arc::new(Held { waits: waits.into(), drops: drops.into(), ..Held::default() });
        let theirs = Arc::clone(&held);
        let server = Server::with_application(
            Config::default(),
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
