//! WebSockets whose upstream is another process. The server forwards their bytes unchanged.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream as Plain;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rookery_exchange::{
    Command, Event, Exchange, IoWaker, PushError, Share, WakeUp, WebSocketCompression, WebSocketId,
};
use rookery_server::{
    Application, Config, Limits, Listener, ListenerConfig, MakeApplication, Rejection, Server,
    Shares, UnixStream, Upstream,
};
use rookery_websocket::protocol::{CloseCode, OpCode, encode_close, encode_frame};
use tempfile::TempDir;

use crate::http2::websocket::Sockets;
use crate::support::tls::{settings, site};
use crate::support::{App, Client, Handler, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};
use crate::websocket::compression::{Peer, compressing, text};

/// A function that connects to the upstream. It returns the socket, headers for the response, and
/// bytes that the upstream has sent after its own response.
type Reach = Box<dyn Fn(&Exchange) -> (Plain, Vec<(String, String)>, Vec<u8>)>;

/// An application that accepts every WebSocket for an upstream.
struct Relaying {
    reach: Reach,
    waker: Arc<dyn IoWaker>,
    far: RefCell<HashMap<WebSocketId, Upstream>>,
    commands: RefCell<VecDeque<Command>>,
}

impl Relaying {
    fn make(reach: impl Fn() -> Reach + Send + Sync + 'static) -> MakeApplication {
        Arc::new(move |waker| {
            let (far, commands) = (RefCell::default(), RefCell::default());
            Box::new(Relaying { reach: reach(), waker, far, commands })
        })
    }
}

impl Application for Relaying {
    fn handle_event(&self, event: Event) -> Result<WakeUp, PushError> {
        if let Event::Request(mut exchange) = event {
            exchange.begin_response(101);
            let (socket, headers, read) = (self.reach)(&exchange);
            for (name, value) in headers {
                exchange.push_response_header(name.as_bytes(), value.as_bytes()).unwrap();
            }
            socket.set_nonblocking(true).unwrap();
            let socket = UnixStream::new(socket).unwrap();
            self.far.borrow_mut().insert(exchange.id(), Upstream { socket, read });
            self.commands.borrow_mut().push_back(Command::Respond(exchange));
            self.waker.wake();
        }
        Ok(WakeUp::NotNeeded)
    }

    fn take_commands(&self, commands: &mut VecDeque<Command>) {
        std::mem::swap(&mut *self.commands.borrow_mut(), commands);
    }

    fn poll_capacity(&self) -> bool {
        true
    }

    fn take_upstream(&self, socket: WebSocketId) -> Option<Upstream> {
        self.far.borrow_mut().remove(&socket)
    }

    fn take_buffer(&self) -> Vec<u8> {
        Vec::new()
    }

    fn recycle_buffer(&self, _: Vec<u8>) {}

    fn events_taken(&self) -> u64 {
        0
    }

    fn prepare_sleep(&self, _: bool) -> bool {
        self.commands.borrow().is_empty()
    }
}

/// A server in front of another one, which has the application.
struct Relayed {
    // It goes first: connections to the other are its.
    _listener: Listener,
    front: Server,
    inner: App,
    address: std::net::SocketAddr,
    _beneath: Listener,
    _folder: TempDir,
}

impl Relayed {
    fn new(limits: Limits, site: ListenerConfig, handler: Handler) -> Relayed {
        let config = Config { limits, ..Config::default() };
        let inner = App::with(config.clone(), ListenerConfig::default(), handler);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker");
        let beneath = inner.server.listen_unix(&path, None, ListenerConfig::default()).unwrap();
        let front =
            Server::with_application(config, Relaying::make(move || handshake(path.clone())));
        let listener = front.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        let address = listener.local_addr().unwrap();
        Relayed { _listener: listener, front, inner, address, _beneath: beneath, _folder: folder }
    }

    /// Connects a client, as `App::connect` does.
    fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

/// Returns a function that performs the handshake with a server on a Unix socket.
fn handshake(path: PathBuf) -> Reach {
    Box::new(move |exchange| {
        let mut socket = Plain::connect(&path).unwrap();
        let mut request = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n".to_vec();
        if let Some(offer) = exchange.header(b"sec-websocket-extensions") {
            request.extend_from_slice(&[b"sec-websocket-extensions: ", offer, b"\r\n"].concat());
        }
        request.extend_from_slice(b"\r\n");
        socket.write_all(&request).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        (
            socket,
            lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            Vec::new(),
        )
    })
}

/// Makes the receive buffer of a socket small.
fn take_little(socket: &Plain) {
    let small: libc::c_int = 16 << 10;
    // SAFETY: The descriptor is an open socket, and the size is that of the option's value.
    unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(socket),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const small).cast(),
            libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap(),
        );
    }
}

/// Starts a server whose upstreams are sockets that the test reads and writes.
fn scripted(limits: Limits, said: &'static [u8]) -> (Server, Listener, Receiver<Plain>) {
    scripted_at(limits, ListenerConfig::default(), said)
}

fn scripted_at(
    limits: Limits,
    site: ListenerConfig,
    said: &'static [u8],
) -> (Server, Listener, Receiver<Plain>) {
    let (sender, receiver): (Sender<Plain>, _) = channel();
    let sender = std::sync::Mutex::new(sender);
    let reach = move || -> Reach {
        let sender = sender.lock().unwrap().clone();
        Box::new(move |_| {
            let (ours, theirs) = Plain::pair().unwrap();
            take_little(&ours);
            theirs.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            sender.send(theirs).unwrap();
            (ours, Vec::new(), said.to_vec())
        })
    };
    let server =
        Server::with_application(Config { limits, ..Config::default() }, Relaying::make(reach));
    let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    (server, listener, receiver)
}

fn open(listener: &Listener, receiver: &Receiver<Plain>, behind: &[u8]) -> (Client, Plain) {
    let mut client = Client::connect(listener.local_addr().unwrap());
    assert_eq!(client.upgrade_with("/ws", "", behind).status, 101);
    (client, receiver.recv_timeout(TEST_TIMEOUT).unwrap())
}

fn text_of(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, OpCode::Text, true, None, payload);
    bytes
}

fn close_of(code: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_close(&mut bytes, CloseCode::new(code), "", None);
    bytes
}

#[test]
fn messages_of_every_size_come_back_over_each_transport() {
    let plain = Relayed::new(Limits::default(), ListenerConfig::default(), echo(hello));
    let over_tls = Relayed::new(Limits::default(), site(settings(&["localhost"])), echo(hello));
    let secure = crate::support::Client::connect_tls(
        over_tls.address,
        &Arc::new(rookery_test_support::tls::client_config(None)),
        "localhost",
    );
    for mut client in [plain.client(), secure.unwrap()] {
        // Data that follow the handshake request are forwarded after it.
        assert_eq!(
            client.upgrade_with("/ws", "", &masked_frame(0x81, b"with the handshake")).status,
            101
        );
        assert_eq!(client.frame(), Some((1, b"with the handshake".to_vec())));
        for len in [0usize, 1, 125, 126, 16_384, 65_535, 65_536, 1_000_000, 20_000_000] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            client.send(masked_frame(0x82, &bytes));
            assert!(client.frame() == Some((2, bytes)), "{len}");
        }
        client.send(masked_frame(0x89, b"ping"));
        assert_eq!(client.frame(), Some((10, b"ping".to_vec())));
        client.send(masked_frame(0x88, b"\x03\xE8"));
        assert_eq!(client.frame(), Some((8, b"\x03\xE8".to_vec())));
        assert!(client.wait_for_close());
    }
    let mut sockets = Sockets::at(over_tls.address);
    sockets.open(1);
    sockets.open(3);
    for len in [0usize, 1, 125, 126, 16 << 10, 65_535, 65_536, 200_000] {
        let payload: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        sockets.send(1, &masked_frame(0x82, &payload));
        sockets.send(3, &masked_frame(0x82, b"beside it"));
        assert!(sockets.frame(1) == Some((0x82, payload)), "{len}");
        assert_eq!(sockets.frame(3), Some((0x82, b"beside it".to_vec())));
    }
    sockets.send(1, &masked_frame(0x81, b"close"));
    assert_eq!(sockets.frame(1), Some((0x88, b"\x0F\xA0bye".to_vec())));
    sockets.send(1, &masked_frame(0x88, b"\x0F\xA0"));
    assert_eq!(sockets.frame(1), None);
    assert_eq!(over_tls.inner.await_event("closed 4000"), "closed 4000");
}

#[test]
fn what_extends_it_is_agreed_on_by_the_two() {
    let compression = WebSocketCompression { level: 2, threshold: 0, keeps_window: true };
    let relayed = Relayed::new(
        Limits::default(),
        ListenerConfig::default(),
        compressing(compression, echo(hello)),
    );
    let mut peer = Peer::of(relayed.client(), "permessage-deflate; client_max_window_bits");
    assert!(peer.answer.is_some());
    for len in [10, 1000, 100_000, 3_000_000] {
        peer.send(&text(len));
        let (opcode, on_the_wire, message) = peer.frame().unwrap();
        assert!(opcode == 2 && on_the_wire.is_some() && message == text(len), "{len}");
    }
    // The messages use context takeover, for which both ends keep a window.
    assert!(peer.answer.is_some_and(|answer| !answer.contains("no_context_takeover")));
}

#[test]
fn what_is_no_frame_is_the_workers_to_refuse() {
    let relayed = Relayed::new(Limits::default(), ListenerConfig::default(), echo(hello));
    for (bytes, code) in [
        // The frames are unmasked, have a reserved opcode, have text that is not UTF-8, and have an
        // invalid length.
        (&b"\x81\x01a"[..], 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\x81\x81\0\0\0\0\xFF", 1007),
        (b"\x82\xFF\x80\0\0\0\0\0\0\0\0\0\0\0", 1002),
        (b"\x82\xFF\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0", 1009),
    ] {
        let mut client = relayed.client();
        client.upgrade("/ws");
        client.send(bytes);
        let (opcode, payload) = client.frame().unwrap();
        assert_eq!((opcode, u16::from_be_bytes([payload[0], payload[1]])), (8, code), "{bytes:x?}");
        assert!(client.wait_for_close());
    }
    wait_until("none is left", || relayed.front.budget().used(Share::Connections) == 0);
}

#[test]
fn what_a_worker_says_with_its_acceptance_comes_behind_the_head() {
    const SAID: &[u8] = b"\x81\x05hello\x81";
    let (_server, listener, receiver) = scripted(Limits::default(), SAID);
    let (mut client, mut worker) = open(&listener, &receiver, b"");
    assert_eq!(client.frame(), Some((1, b"hello".to_vec())));
    worker.write_all(b"\x01a").unwrap();
    assert_eq!(client.frame(), Some((1, b"a".to_vec())));
}

#[test]
fn a_close_frame_goes_in_at_a_frames_end_wherever_the_bytes_are_cut() {
    let frame = text_of(&[b'x'; 300]);
    for at in [1, 2, 3, 4, 5, 100, frame.len() - 1] {
        let (_server, listener, receiver) = scripted(Limits::default(), b"");
        let (mut client, mut worker) = open(&listener, &receiver, b"");
        worker.write_all(&frame).unwrap();
        assert!(client.frame() == Some((1, vec![b'x'; 300])));
        worker.write_all(&frame[..at]).unwrap();
        while client.read.len() < at {
            assert!(client.fill());
        }
        let stopping = std::thread::spawn(move || listener.stop());
        // The upstream sends the rest of the frame, and another frame, which must not follow the
        // close frame.
        worker.write_all(&[&frame[at..], &frame].concat()).unwrap();
        assert!(client.frame() == Some((1, vec![b'x'; 300])), "{at}");
        let told = client.frame();
        // A frame that arrived before the server knew that the WebSocket ends is forwarded.
        let told = if told == Some((1, vec![b'x'; 300])) { client.frame() } else { told };
        assert_eq!(told, Some((8, b"\x03\xE9".to_vec())), "{at}");
        // The client's close frame is forwarded to the worker.
        client.send(masked_frame(0x88, b"\x03\xE9"));
        let mut heard = [0; 8];
        worker.read_exact(&mut heard).unwrap();
        assert_eq!(heard[..2], [0x88, 0x82]);
        worker.write_all(&close_of(1001)).unwrap();
        drop(worker);
        assert!(client.wait_for_close(), "{at}");
        stopping.join().unwrap();
    }
}

#[test]
fn a_worker_that_ends_is_told_of_where_that_can_be_said() {
    let (_server, listener, receiver) = scripted(Limits::default(), b"");
    for (said, frames) in [
        (&b""[..], &[(8, &b"\x03\xF4the worker has ended"[..])][..]),
        (b"\x81\x01a", &[(1, b"a"), (8, b"\x03\xF4the worker has ended")]),
        // A close frame may be sent between the fragments of a message.
        (b"\x01\x01a", &[(1, b"a"), (8, b"\x03\xF4the worker has ended")]),
        // The worker has sent a close frame itself. The first of these differs from what the client
        // gets.
        (b"\x88\x02\x03\xE9", &[(8, b"\x03\xF4")]),
        (b"\x88\x02\x03\xE8", &[(8, b"\x03\xE8")]),
        // The upstream ends within the payload of a frame, and within a header.
        (b"\x81\x05ab", &[]),
        (b"\x81", &[]),
        // The upstream sends an invalid frame.
        (b"\x83\x00", &[(3, b"")]),
    ] {
        let (mut client, mut worker) = open(&listener, &receiver, b"");
        worker.write_all(said).unwrap();
        drop(worker);
        for (opcode, payload) in frames {
            assert_eq!(client.frame(), Some((*opcode, payload.to_vec())), "{said:x?}");
        }
        assert_eq!(client.frame(), None, "{said:x?}");
    }
}

#[test]
fn each_side_hears_of_the_others_end() {
    let (server, listener, receiver) = scripted(Limits::default(), b"");
    let mut byte = [0; 16];
    // The upstream ends with a FIN after other data, or without any data.
    for says in [true, false] {
        let (mut client, mut worker) = open(&listener, &receiver, b"");
        if says {
            client.send(masked_frame(0x81, b"a"));
            client.socket.shutdown(std::net::Shutdown::Write).unwrap();
            worker.read_exact(&mut byte[..7]).unwrap();
        } else {
            drop(client);
        }
        assert_eq!(worker.read(&mut byte).unwrap(), 0, "{says}");
        drop(worker);
    }
    wait_until("both have left", || server.budget().used(Share::Connections) == 0);
    // The server does not wait for an upstream that never closes its side.
    let limits = Limits { ws_close_timeout: Duration::from_millis(100), ..Limits::default() };
    let (server, listener, receiver) = scripted(limits, b"");
    let (mut client, worker) = open(&listener, &receiver, b"");
    drop(worker);
    assert_eq!(client.frame().unwrap().0, 8);
    wait_until("it is dropped", || server.budget().used(Share::Connections) == 0);
    let (client, worker) = open(&listener, &receiver, b"");
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    wait_until("it is dropped", || server.budget().used(Share::Connections) == 0);
    drop(worker);
}

/// The maximum number of bytes that two sockets and the buffers between them hold in these tests.
const LITTLE: usize = 16 << 20;

#[test]
fn who_does_not_take_what_comes_is_waited_for_and_given_up() {
    let limits =
        Limits { ws_stall_timeout: Duration::from_secs(2), ws_min_rate: 0, ..Limits::default() };
    let (server, listener, receiver) = scripted(limits, b"");
    // The worker does not read, so the server does not read the client. The client is not
    // disconnected for that.
    let (client, worker) = open(&listener, &receiver, b"");
    client.socket.set_write_timeout(Some(Duration::from_secs(4))).unwrap();
    let (mut socket, mut sent) = (client.socket.try_clone().unwrap(), 0);
    let piece = vec![0; 64 << 10];
    while sent < LITTLE {
        match socket.write(&piece) {
            Ok(n) => sent += n,
            Err(_) => break,
        }
    }
    assert!(sent < LITTLE, "{sent}");
    assert!(server.budget().used(Share::Messages) <= 64 << 10);
    let mut worker = worker;
    let mut heard = vec![0; sent];
    worker.read_exact(&mut heard).unwrap();
    drop((client, worker, socket));
    // The client does not read, so the server does not read the worker, until the client's time is
    // over.
    let (client, mut worker) = open(&listener, &receiver, b"");
    let mut sent = 0;
    let error = loop {
        match worker.write(&piece) {
            Ok(n) => sent += n,
            Err(error) => break error,
        }
        assert!(sent < LITTLE, "{sent}");
        assert!(server.budget().used(Share::Queues) <= 64 << 10);
    };
    assert!(matches!(
        error.kind(),
        std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset
    ));
    assert_eq!(server.reports().count(Rejection::Unread), 1);
    drop(client);
}

#[test]
fn without_room_for_what_waits_it_ends_and_others_do_not() {
    // The share is less than some of the tunnels hold.
    let shares = Shares { connections: 50, queues: 1, ..Shares::default() };
    let limits = Limits { max_client_memory: Some(2 << 20), shares, ..Limits::default() };
    let (server, listener, receiver) = scripted(limits, b"");
    let (mut other, mut its) = open(&listener, &receiver, b"");
    let frame = text_of(&vec![b'x'; 200_000]);
    let held: Vec<_> = (0..12)
        .map(|_| {
            let (client, worker) = open(&listener, &receiver, b"");
            worker.set_nonblocking(true).unwrap();
            (client, worker)
        })
        .collect();
    wait_until("one is ended", || {
        for (_, worker) in &held {
            // The worker reads everything.
            let mut worker = worker;
            while worker.write(&frame).is_ok() {}
        }
        server.reports().count(Rejection::Overload) > 0
    });
    assert!(server.budget().used(Share::Queues) <= server.budget().limit(Share::Queues));
    its.write_all(&text_of(b"still there")).unwrap();
    assert_eq!(other.frame(), Some((1, b"still there".to_vec())));
}

#[test]
fn behind_a_close_frame_put_in_nothing_comes_also_when_the_client_has_ended_its_side() {
    let (_server, listener, receiver) = scripted(Limits::default(), b"");
    let (mut client, mut worker) = open(&listener, &receiver, b"");
    let stopping = std::thread::spawn(move || listener.stop());
    assert_eq!(client.frame(), Some((8, b"\x03\xE9".to_vec())));
    client.send(masked_frame(0x88, b"\x03\xE9"));
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    worker.read_to_end(&mut heard).unwrap();
    assert_eq!(heard[..2], [0x88, 0x82]);
    // The worker's close frame, and data that it sent before it knew of the end.
    let _ = worker.write_all(&[text_of(b"late"), close_of(1001)].concat());
    drop(worker);
    assert_eq!(client.frame(), None);
    stopping.join().unwrap();
}

/// Sends more than a worker that does not read can buffer.
fn flood(client: &mut Client) {
    client.socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    // Writing fails as soon as the server closes the connection.
    let _ = client.socket.write_all(&masked_frame(0x82, &vec![7; 32 << 20]));
}

#[test]
fn a_client_that_goes_is_noticed_while_its_worker_reads_nothing() {
    let (server, listener, receiver) = scripted(Limits::default(), b"");
    let (mut client, worker) = open(&listener, &receiver, b"");
    flood(&mut client);
    assert_eq!(listener.connections(), 1);
    client.reset();
    wait_until("the reset is noticed", || listener.connections() == 0);
    assert_eq!(server.budget().used(Share::Messages), 0);
    drop(worker);
}

#[test]
fn the_fin_of_a_client_is_noticed_while_its_worker_reads_nothing() {
    // The client's FIN does not end the tunnel, so that the worker has more time.
    let limits = Limits { ws_stall_timeout: Duration::from_millis(200), ..Limits::default() };
    let (_server, listener, receiver) = scripted(limits, b"");
    let (mut client, worker) = open(&listener, &receiver, b"");
    // The message exceeds what the worker's socket buffers, and is less than the system buffers in
    // addition. Otherwise the FIN after it would not arrive.
    client.send(masked_frame(0x82, &vec![7; 100_000]));
    assert_eq!(listener.connections(), 1);
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    wait_until("the end is noticed", || listener.connections() == 0);
    drop((client, worker));
}

#[test]
fn a_stream_whose_connection_goes_is_noticed_while_its_worker_reads_nothing() {
    let limits = Limits { header_timeout: Duration::from_secs(1), ..Limits::default() };
    let (server, listener, receiver) = scripted_at(limits, site(settings(&["localhost"])), b"");
    let address = listener.local_addr().unwrap();
    let mut sockets = Sockets::at(address);
    sockets.open(1);
    let worker = receiver.recv_timeout(TEST_TIMEOUT).unwrap();
    // The message fits into the window of a stream, and exceeds what the worker's socket buffers.
    sockets.send(1, &masked_frame(0x82, &vec![7; 200_000]));
    wait_until("it is paused", || server.budget().used(Share::Messages) > 50_000);
    drop(sockets);
    wait_until("nobody is left", || server.budget().used(Share::Connections) == 0);
    assert_eq!(server.budget().used(Share::Messages), 0);
    // The deadlines of new connections are enforced.
    let config = Arc::new(rookery_test_support::tls::client_config(None));
    let mut late = crate::support::Client::connect_tls(address, &config, "localhost").unwrap();
    late.send("GET / HTTP/1.1\r\n");
    assert_eq!(late.response().unwrap().status, 408);
    drop(worker);
}
