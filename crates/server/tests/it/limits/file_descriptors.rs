//! Clients of one address hold all descriptors for files, and clients of another one are served.
//! Linux has both addresses without being told.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};

use rookery_exchange::{Exchange, ResponseBody, Share};
use rookery_server::static_files::{StaticFiles, StaticPath};
use rookery_server::{Config, Limits, ListenerConfig, TrustedProxies};

use crate::support::http2::{Heard, Peer, code, frame, get, kind, post};
use crate::support::tls::{settings, site};
use crate::support::{App, Client, echo, hello, in_own_process, wait_until};

/// The length of the file: more than the server or a socket takes of a response that is not read.
const LEN: usize = 30_000_000;

/// A server whose clients may hold few files open at a time, and a file.
struct Site {
    app: App,
    dir: tempfile::TempDir,
    /// The address of a listener without TLS.
    plain: SocketAddr,
}

impl Site {
    /// Starts a server with a file at `/s/large.bin`. Large bodies of requests are spooled. The app
    /// responds with the file to requests for `/large`.
    fn new(limits: Limits, more: ListenerConfig) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let large = dir.path().join("large.bin");
        File::create(&large).unwrap().set_len(LEN as u64).unwrap();
        std::fs::write(dir.path().join("small.txt"), "small").unwrap();
        let files = StaticFiles::new();
        let path = StaticPath { path: dir.path().into(), ..StaticPath::default() };
        files.set([("/s".to_owned(), path)]).unwrap();
        let respond = move |exchange: &mut Exchange| {
            if exchange.path() != b"/large" {
                return hello(exchange);
            }
            exchange.begin_response(200);
            let file = File::open(&large).unwrap();
            let len = LEN as u64;
            exchange.response_mut().set_body(ResponseBody::File { file, len, charge: None });
        };
        let limits = Limits { body_buffer_size: 1000, max_connections: 40, ..limits };
        let config = Config { limits, ..Config::default() };
        let with_tls = ListenerConfig {
            files: files.clone(),
            ..ListenerConfig { tls: site(settings(&["localhost"])).tls, ..more }
        };
        let app = App::with(config, with_tls, echo(respond));
        let without = ListenerConfig { files, ..ListenerConfig::default() };
        let plain = app.server.listen_tcp("127.0.0.1:0".parse().unwrap(), without).unwrap();
        let plain_address = plain.local_addr().unwrap();
        // The listener ends with the server.
        std::mem::forget(plain);
        Site { app, dir, plain: plain_address }
    }

    /// Lets clients hold this number of files at a time.
    fn allow_files(&self, files: usize) {
        self.app.server.budget().set_limit(Share::Descriptors, files);
    }

    fn held(&self) -> usize {
        self.app.server.budget().used(Share::Descriptors)
    }

    /// Connects from another network than all other clients of the tests.
    fn connect_from_elsewhere(&self) -> Client {
        Client::connect_from(Ipv4Addr::new(127, 0, 0, 2).into(), self.plain)
    }

    /// Returns the number of files at a path of the folder or without a name that this process has
    /// open.
    fn open_files(&self) -> usize {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let paths = all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        paths.filter(|path| path.starts_with(self.dir.path())).count()
    }
}

/// Waits until the server has processed all frames of a connection.
fn sync(peer: &mut Peer) {
    peer.send(frame(kind::PING, 0, 0, &[0; 8]));
    assert!(peer.frame_of(kind::PING).is_some());
}

#[test]
fn unread_files_of_an_address_leave_descriptors_for_another_address() {
    // The test runs in its own process because it lowers a limit.
    if !in_own_process!() {
        return;
    }
    let limit = libc::rlimit { rlim_cur: 300, rlim_max: 300 };
    // SAFETY: The pointer is that of a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let site = Site::new(Limits::default(), ListenerConfig::default());
    // The limit without the reserve and the sockets.
    let allowed = site.app.server.budget().limit(Share::Descriptors);
    assert_eq!(allowed, 300 - 75 - 40);
    let mut greedy: Vec<Peer> = (0..5).map(|_| Peer::new(&site.app)).collect();
    let mut most = 0;
    for peer in &mut greedy {
        for at in 0..90 {
            peer.ask(2 * at + 1, &get("/s/large.bin"));
            most = most.max(site.open_files());
        }
        sync(peer);
    }
    // Evicted requests may have some more open for a moment, and one that is refused its own.
    assert!((allowed..=allowed + allowed / 16 + 2).contains(&most), "{most} of {allowed}");
    wait_until("all are used", || site.held() == allowed && site.open_files() == allowed);
    let mut honest: Vec<Client> = (0..8).map(|_| site.connect_from_elsewhere()).collect();
    for client in &mut honest {
        assert_eq!(client.get("/s/small.txt").body, b"small");
        client.send("GET /s/large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &mut honest {
        let response = client.response().unwrap();
        assert_eq!((response.status, response.body.len()), (200, LEN));
    }
    assert!(site.held() <= allowed && site.open_files() <= allowed);
    drop(greedy);
    wait_until("all are released", || site.held() == 0 && site.open_files() == 0);
}

#[test]
fn the_newest_file_of_the_largest_address_makes_place_for_one_of_another_address() {
    for path in ["/s/large.bin", "/large"] {
        let site = Site::new(Limits::default(), ListenerConfig::default());
        site.allow_files(8);
        // A file without a name is closed by another thread.
        let await_closing = || wait_until("all others are closed", || site.held() == 8);
        let ask = |client: &mut Client| {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client.fill();
            await_closing();
        };
        let mut greedy: Vec<Client> = (0..8).map(|_| Client::connect(site.plain)).collect();
        for client in &mut greedy {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client.fill();
        }
        await_closing();
        // All clients of the address have as many files, so a further one gets none.
        let refused = Client::connect(site.plain).get(path);
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{path}");
        await_closing();
        let mut honest: Vec<Client> = (0..4).map(|_| site.connect_from_elsewhere()).collect();
        honest.iter_mut().for_each(ask);
        // With a fifth file, the honest address would not have fewer than the other.
        assert_eq!(site.connect_from_elsewhere().get(path).status, 503, "{path}");
        let last = greedy.split_off(4);
        for client in greedy.iter_mut().chain(&mut honest) {
            let response = client.response().unwrap();
            assert_eq!((response.status, response.body.len()), (200, LEN), "{path}");
        }
        for mut client in last {
            while client.fill() {}
            assert!(client.read.len() < LEN, "{path}: it was not cut off");
        }
        wait_until("all are released", || site.held() == 0 && site.open_files() == 0);
    }
}

#[test]
fn spooled_bodies_of_an_address_make_place_for_one_of_another_address() {
    let site = Site::new(Limits::default(), ListenerConfig::default());
    site.allow_files(10);
    let mut greedy = Peer::new(&site.app);
    for at in 0..10 {
        greedy.begin(2 * at + 1, &post("/"));
        greedy.send(frame(kind::DATA, 0, 2 * at + 1, &[b'a'; 2000]));
    }
    wait_until("all are used", || site.held() == 10);
    let mut honest: Vec<Client> = (0..3).map(|_| site.connect_from_elsewhere()).collect();
    for (client, stream) in honest.iter_mut().zip([19, 17, 15]) {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n");
        client.send(vec![b'a'; 4000]);
        assert_eq!(greedy.outcome(stream), Heard::Status(503));
    }
    for client in &mut honest {
        client.send(vec![b'a'; 1000]);
        assert_eq!(client.response().unwrap().status, 200);
    }
    greedy.send(frame(kind::DATA, 1, 1, &[b'a'; 2000]));
    assert_eq!(greedy.outcome(1), Heard::Status(200));
    drop(greedy);
    wait_until("all are released", || site.held() == 0);
}

#[test]
fn files_of_a_client_behind_a_proxy_make_place_for_those_of_another_client() {
    let proxies = TrustedProxies::parse(["127.0.0.1"]).unwrap();
    let more = ListenerConfig { proxies, ..ListenerConfig::default() };
    let site = Site::new(Limits::default(), more);
    site.allow_files(20);
    let mut proxy = Peer::new(&site.app);
    let of = |client| [&get("/s/large.bin")[..], &[("x-forwarded-for", client)]].concat();
    for at in 0..20 {
        proxy.ask(2 * at + 1, &of("192.0.2.1"));
    }
    wait_until("all are used", || site.held() == 20);
    for stream in [101, 103] {
        proxy.ask(stream, &of("192.0.2.2"));
        assert_eq!(proxy.outcome(stream), Heard::Status(200));
    }
    // Their files were opened on other threads, in any order.
    let mut reset = [0; 2];
    for stream in &mut reset {
        let frame = proxy.frame_of(kind::RST_STREAM).unwrap();
        assert_eq!(frame.payload, code::CANCEL.to_be_bytes());
        *stream = frame.stream;
    }
    assert!(reset[0] != reset[1] && reset.iter().all(|stream| *stream < 40), "{reset:?}");
    wait_until("two are released", || site.held() == 20);
    proxy.ask(105, &[&get("/")[..], &[("x-forwarded-for", "192.0.2.1")]].concat());
    assert_eq!(proxy.outcome(105), Heard::Status(200));
}
