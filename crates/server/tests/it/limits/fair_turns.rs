//! The networks of clients take turns on the I/O thread.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_server::{Config, ListenerConfig};
use rookery_test_support::wait_until;

use crate::support::{App, Client, echo, hello};

const REQUEST: &[u8] = b"GET /s/file.txt HTTP/1.1\r\nHost: a\r\n\r\n";

/// Connections that send requests without pause, and read all responses.
struct Crowd {
    read: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn new(address: SocketAddr, connections: usize) -> Crowd {
        let (read, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let threads = (0..2).map(|_| {
            let (read, is_over) = (Arc::clone(&read), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let mut streams: Vec<TcpStream> = (0..connections / 2)
                    .map(|_| {
                        let stream = TcpStream::connect(address).unwrap();
                        stream.set_nonblocking(true).unwrap();
                        stream
                    })
                    .collect();
                // A request that was sent in part continues with the next bytes.
                let requests = REQUEST.repeat(200);
                let mut sent = vec![0; streams.len()];
                let mut buffer = vec![0; 64 << 10];
                while !is_over.load(Ordering::Relaxed) {
                    for (stream, sent) in streams.iter_mut().zip(&mut sent) {
                        if let Some(n) = done(stream.write(&requests[*sent % REQUEST.len()..])) {
                            *sent += n;
                        }
                        if let Some(n) = done(stream.read(&mut buffer)) {
                            read.fetch_add(n, Ordering::Relaxed);
                        }
                    }
                }
            })
        });
        Crowd { threads: threads.collect(), read, is_over }
    }

    fn read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }
}

/// Returns the bytes that were read or written, or `None` if nothing could be.
fn done(result: std::io::Result<usize>) -> Option<usize> {
    match result {
        Ok(n) => Some(n),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}

#[test]
fn a_client_is_answered_beside_a_network_with_many_busy_connections() {
    const CONNECTIONS: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file.txt"), "hello").unwrap();
    let files = StaticFiles::new();
    let path = StaticPath { path: dir.path().into(), overrides: Overrides::default() };
    files.set([("/s".to_owned(), path)]).unwrap();
    let site = ListenerConfig { files, ..ListenerConfig::default() };
    let app = App::with(Config::default(), site, echo(hello));
    let mut client = Client::connect_from(Ipv4Addr::new(127, 0, 0, 2).into(), app.address);
    assert_eq!(client.get("/s/file.txt").status, 200);
    // A head has more bytes than this.
    let bytes = 100;
    let crowd = Crowd::new(app.address, CONNECTIONS);
    wait_until("all are served", || crowd.read() > 10 * CONNECTIONS * bytes);
    let mut waits: Vec<usize> = (0..20)
        .map(|_| {
            let before = crowd.read();
            assert_eq!(client.get("/s/file.txt").status, 200);
            (crowd.read() - before) / bytes
        })
        .collect();
    waits.sort_unstable();
    // By the order of arrival, each of the 200 would get up to 16 responses, and that twice. While
    // other programs keep the crowd from reading, more responses may wait in its sockets.
    assert!(waits[5] < 5 * CONNECTIONS, "responses to others meanwhile: {waits:?}");
}
