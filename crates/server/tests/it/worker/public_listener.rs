//! A worker that accepts connections on its supervisor's public listeners while the supervisor
//! allows it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rookery_exchange::{Command, Event, Exchange, Link, Payload, StreamOptions};
use rookery_server::{Config, Limits, ListenerConfig, SupervisorRequest};
use rookery_test_support::tls::client_config;
use rookery_worker_protocol::{KEEP_WEBSOCKETS, Message, PublicSockets, Received};

use crate::support::tls::{settings, site};
use crate::support::{App, Client, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};
use crate::worker::Worker;

/// The supervisor's side of a public listener.
struct Public {
    socket: TcpListener,
    address: SocketAddr,
}

impl Public {
    fn new() -> Public {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        Public { socket, address }
    }

    fn copy(&self) -> OwnedFd {
        OwnedFd::from(self.socket.try_clone().unwrap())
    }

    /// Returns what a worker inherits that gets only this listener.
    fn alone(&self) -> PublicSockets {
        PublicSockets { sockets: vec![self.copy()], redirects: Vec::new() }
    }
}

/// Responds. The response to `/slow` is delayed.
fn who(exchange: &mut Exchange) {
    let is_slow = exchange.path() == b"/slow";
    if is_slow {
        std::thread::sleep(Duration::from_millis(300));
    }
    exchange.begin_response(200);
    exchange.set_response_body(b"here");
}

/// Responds with more than the buffers of sockets hold.
fn large(exchange: &mut Exchange) {
    exchange.begin_response(200);
    exchange.set_response_body(&vec![7; 64 << 20]);
}

fn worker(public: &Public) -> Worker {
    Worker::with(Config::default(), echo(who), public.alone())
}

fn says(worker: &Worker, message: Message, answer: Message) {
    worker.control.send(message).unwrap();
    assert_eq!(worker.told(), Received::Message(answer));
}

/// Makes a worker accept connections. The number of the message does not matter.
fn accepts(worker: &Worker) {
    says(worker, Message::Accept(1), Message::Accepting(1));
}

#[test]
fn connections_wait_in_the_queue_until_the_worker_is_told_to_accept() {
    let public = Public::new();
    let worker = worker(&public);
    let mut early = Client::connect(public.address);
    early.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // The connection waits in the socket's queue, and is not accepted yet.
    assert!(early.frame_within(Duration::from_millis(200)).is_none());
    accepts(&worker);
    assert_eq!(early.response().unwrap().body, b"here");
    assert_eq!(worker.board.read().connections, 1);
    says(&worker, Message::StopAccepting(2), Message::NotAccepting(2));
    // The supervisor accepts connections on the same socket.
    let late = Client::connect(public.address);
    wait_until("the supervisor accepts", || public.socket.accept().is_ok());
    // A connection stays with the process that has accepted it.
    assert_eq!(early.get("/").body, b"here");
    drop((early, late));
    wait_until("none is left", || worker.board.read().connections == 0);
    // The worker accepts again.
    says(&worker, Message::Accept(3), Message::Accepting(3));
    assert_eq!(Client::connect(public.address).get("/").body, b"here");
}

#[test]
fn a_stopped_worker_does_not_wait_for_a_client_that_does_not_read() {
    let public = Public::new();
    let limits = Limits { stop_timeout: Duration::from_millis(50), ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let worker = Worker::with(config, echo(large), public.alone());
    accepts(&worker);
    let mut client = Client::connect(public.address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the response begins", || client.socket.peek(&mut [0]).is_ok_and(|read| read > 0));
    worker.control.send(Message::Stop).unwrap();
    assert_eq!(worker.asked.recv_timeout(TEST_TIMEOUT), Ok(SupervisorRequest::Stop));
    wait_until("it is disconnected", || worker.board.read().connections == 0);
}

#[test]
fn a_stopped_worker_cuts_only_streams_that_the_application_has_not_ended() {
    for is_ended in [true, false] {
        let public = Public::new();
        let (continues, may_continue) = mpsc::channel();
        let (has_ended, ended) = mpsc::channel();
        let handler = move |link: &Link, event| {
            let Event::Request(mut exchange) = event else { return };
            let (id, stream) = (exchange.id(), link.stream(StreamOptions::default()));
            exchange.begin_response(200);
            exchange.set_response_stream(stream.clone());
            link.send(Command::Respond(exchange));
            stream.flow.admit(3);
            let payload = Payload::Pooled(b"one".to_vec());
            link.send(Command::Chunk { stream: id, payload, is_pushing: false });
            link.flush();
            may_continue.recv_timeout(TEST_TIMEOUT).unwrap();
            if is_ended {
                // The I/O thread is woken for this command half a millisecond later.
                link.send(Command::EndStream { stream: id });
            }
            has_ended.send(()).unwrap();
            let _ = may_continue.recv_timeout(TEST_TIMEOUT);
        };
        let worker = Worker::with(Config::default(), handler, public.alone());
        accepts(&worker);
        let mut client = Client::connect(public.address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut start = [0; 512];
        wait_until("the chunk", || {
            client.socket.peek(&mut start).is_ok_and(|read| start[..read].ends_with(b"one\r\n"))
        });
        continues.send(()).unwrap();
        ended.recv_timeout(TEST_TIMEOUT).unwrap();
        worker.control.send(Message::Stop).unwrap();
        assert_eq!(worker.asked.recv_timeout(TEST_TIMEOUT), Ok(SupervisorRequest::Stop));
        let (bytes, is_clean) = client.read_to_end();
        drop(continues);
        let text = String::from_utf8_lossy(&bytes);
        let end = if is_ended { "3\r\none\r\n0\r\n\r\n" } else { "3\r\none\r\n" };
        assert!(text.ends_with(end), "{text}");
        assert_eq!(is_clean, is_ended);
    }
}

#[test]
fn nobody_is_lost_while_two_processes_take_turns_at_accepting() {
    let public = Public::new();
    let worker = worker(&public);
    let other = App::with(Config::default(), ListenerConfig::default(), echo(hello));
    let mut given = rookery_server::InheritedSockets::default();
    given.push_tcp(public.socket.try_clone().unwrap());
    let front = other.server.listen_inherited(&given, ListenerConfig::default()).unwrap();
    let address = public.address;
    let clients: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let ask = |_| usize::from(Client::connect(address).get("/").body == b"here");
                (0..300).map(ask).sum::<usize>()
            })
        })
        .collect();
    for number in 0..40 {
        front.set_accepting(false);
        says(&worker, Message::Accept(number), Message::Accepting(number));
        std::thread::sleep(Duration::from_millis(2));
        says(&worker, Message::StopAccepting(number), Message::NotAccepting(number));
        front.set_accepting(true);
        std::thread::sleep(Duration::from_millis(2));
    }
    // All 1,200 requests were answered by one of the two processes.
    let by_worker: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert!(by_worker > 0 && by_worker < 1200, "{by_worker}");
}

#[test]
fn a_worker_without_a_listener_refuses_to_accept() {
    let public = Public::new();
    let mut worker = worker(&public);
    accepts(&worker);
    // R stops its server.
    worker.listener.take().unwrap().stop();
    says(&worker, Message::Accept(2), Message::NotAccepting(2));
    let _waits = Client::connect(public.address);
    wait_until("the supervisor accepts", || public.socket.accept().is_ok());
    // R starts another server.
    worker.listen(&ListenerConfig::default());
    says(&worker, Message::Accept(3), Message::Accepting(3));
    assert_eq!(Client::connect(public.address).get("/").status, 200);
    // A worker that has inherited no public listener never accepts on one.
    let none = Worker::with(Config::default(), echo(hello), PublicSockets::default());
    says(&none, Message::Accept(1), Message::NotAccepting(1));
}

#[test]
fn a_worker_that_retires_ends_connections_with_their_next_reply_and_keeps_websockets() {
    let public = Public::new();
    let limits = Limits { ws_close_timeout: Duration::from_secs(1), ..Limits::default() };
    let worker = Worker::with(Config { limits, ..Config::default() }, echo(who), public.alone());
    accepts(&worker);
    let [mut used, mut idle, mut slow, mut socket] =
        [(); 4].map(|()| Client::connect(public.address));
    for client in [&mut used, &mut idle] {
        assert_eq!(client.get("/").header("connection"), None);
    }
    assert_eq!(socket.upgrade("/ws").status, 101);
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("all are there", || {
        worker.board.read().connections == 4 && worker.board.read().handed == 4
    });
    worker.control.send(Message::Retire(KEEP_WEBSOCKETS)).unwrap();
    // The worker has closed the socket, so that new connections are accepted by the supervisor,
    // whatever the worker is told.
    says(&worker, Message::Accept(9), Message::NotAccepting(9));
    used.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let reply = slow.response().unwrap();
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(slow.wait_for_close());
    let reply = used.response().unwrap();
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(used.wait_for_close());
    // An idle connection is closed after a while.
    assert!(idle.wait_for_close());
    socket.send(masked_frame(0x81, b"still here"));
    assert_eq!(socket.frame(), Some((1, b"still here".to_vec())));
    wait_until("the WebSocket alone is left", || worker.board.read().connections == 1);
    worker.control.send(Message::Retire(200)).unwrap();
    let (opcode, payload) = socket.frame().unwrap();
    assert_eq!((opcode, &payload[..2]), (8, &1012_u16.to_be_bytes()[..]));
}

#[test]
fn after_the_end_of_the_supervisor_nothing_is_accepted_and_the_address_stays_taken() {
    let public = Public::new();
    let mut worker = worker(&public);
    accepts(&worker);
    let mut client = Client::connect(public.address);
    assert_eq!(client.get("/").status, 200);
    let address = public.address;
    // The supervisor was killed, so that its side of all channels is closed.
    let (nobody, _) = rookery_worker_protocol::ControlChannel::pair().unwrap();
    drop(public);
    drop(std::mem::replace(&mut worker.control, nobody));
    assert_eq!(
        worker.asked.recv_timeout(TEST_TIMEOUT),
        Ok(SupervisorRequest::Disconnected { has_clients: true })
    );
    // The worker finishes its requests, and no other process can bind the address meanwhile.
    assert_eq!(TcpListener::bind(address).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    let _late = TcpStream::connect(address).unwrap();
    assert_eq!(client.get("/").status, 200);
    assert_eq!(worker.board.read().connections, 1);
    drop(client);
    drop(worker);
    wait_until("a successor binds", || TcpListener::bind(address).is_ok());
}

#[test]
fn public_listeners_speak_tls_and_redirect() {
    let (public, redirect) = (Public::new(), Public::new());
    let sockets = PublicSockets { sockets: vec![public.copy()], redirects: vec![redirect.copy()] };
    let mut worker = Worker::with(Config::default(), echo(who), sockets);
    drop(worker.listener.take());
    worker.listen(&site(settings(&["localhost"])));
    accepts(&worker);
    let mut client =
        Client::connect_tls(public.address, &Arc::new(client_config(None)), "localhost").unwrap();
    assert_eq!(client.get("/").body, b"here");
    let mut client = Client::connect(redirect.address);
    client.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let reply = client.response().unwrap();
    let place = format!("https://localhost:{}/x", public.address.port());
    assert_eq!((reply.status, reply.header("location")), (308, Some(&*place)));
}

#[test]
fn a_supervisor_may_ask_for_the_log_to_be_reopened() {
    let public = Public::new();
    let worker = worker(&public);
    worker.control.send(Message::ReopenLog).unwrap();
    assert_eq!(worker.asked.recv_timeout(TEST_TIMEOUT), Ok(SupervisorRequest::ReopenLog));
}
