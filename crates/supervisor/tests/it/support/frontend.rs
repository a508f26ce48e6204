//! The server in front of workers, and a client of plain sockets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_server::access_log::{AccessLog, OwnedRecord};
use rookery_server::{Config, Listener, ListenerConfig, Server};
use rookery_supervisor::{BackendRegistry, PoolLimits, pool};
use tempfile::TempDir;

use crate::support::fake_worker::FakeWorker;

/// Tests wait this long for what should come at once; the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what comes by itself.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// See the module.
pub(crate) struct Frontend {
    pub(crate) registry: Arc<BackendRegistry>,
    pub(crate) workers: Vec<FakeWorker>,
    pub(crate) address: SocketAddr,
    folder: TempDir,
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
            folder: tempfile::tempdir().unwrap(),
            epochs: 0,
            listener: Some(listener),
            server,
        };
        for slot in 0..workers {
            front.join(slot);
        }
        front
    }

    /// The lines of its access log from now on, as values.
    pub(crate) fn log(&self) -> Log {
        let log = Arc::new(AccessLog::read());
        self.server.set_access_log(Some(Arc::clone(&log)));
        Log(log)
    }

    /// One worker more.
    pub(crate) fn join(&mut self, slot: u32) {
        self.epochs += 1;
        let worker = FakeWorker::start(self.folder.path(), slot, self.epochs);
        self.registry.add(&worker.backend);
        self.workers.push(worker);
    }

    /// One whose application sees heads.
    pub(crate) fn join_seeing_heads(&mut self, slot: u32) {
        self.epochs += 1;
        let worker = FakeWorker::start_seeing_heads(self.folder.path(), slot, self.epochs);
        self.registry.add(&worker.backend);
        self.workers.push(worker);
    }

    /// Kills a worker, and has that be known.
    pub(crate) fn kill(&mut self, at: usize) {
        let mut worker = self.workers.remove(at);
        worker.die();
        self.registry.remove(&worker.backend);
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Asks on a thread of its own.
    pub(crate) fn ask(&self, path: &str) -> std::thread::JoinHandle<Reply> {
        let (mut client, path) = (self.connect(), path.to_owned());
        std::thread::spawn(move || client.get(&path))
    }
}

/// An access log that is read.
pub(crate) struct Log(Arc<AccessLog>);

impl Log {
    /// The next line.
    pub(crate) fn line(&self) -> OwnedRecord {
        let mut line = None;
        until("a line of the log", || {
            line = self.0.take();
            line.is_some()
        });
        line.unwrap()
    }
}

/// A reply as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A client of plain sockets.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    pub(crate) read: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Client { socket, read: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).unwrap();
    }

    /// Has its end be one that nobody takes for the end of a request alone.
    pub(crate) fn reset_on_close(&self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: an open socket and a valid option of the size said.
        let set = unsafe {
            libc::setsockopt(
                std::os::fd::AsRawFd::as_raw_fd(&self.socket),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                size_of::<libc::linger>() as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.request("GET", path, b"")
    }

    /// When no worker is awake any more from a request before: they take turns then.
    pub(crate) fn get_at_rest(&mut self, path: &str) -> Reply {
        std::thread::sleep(Duration::from_millis(2));
        self.get(path)
    }

    pub(crate) fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Reply {
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{length}\r\n"));
        self.send(body);
        self.reply(method)
    }

    /// Reads until `end` has come; what is before it is returned, with it.
    pub(crate) fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|window| window == end) {
                return self.read.drain(..at + end.len()).collect();
            }
            assert!(self.fill(), "the end came before {:?}", String::from_utf8_lossy(end));
        }
    }

    fn exactly(&mut self, len: usize) -> Vec<u8> {
        while self.read.len() < len {
            assert!(self.fill(), "the end came early");
        }
        self.read.drain(..len).collect()
    }

    pub(crate) fn head(&mut self) -> Reply {
        let head = String::from_utf8(self.until(b"\r\n\r\n")).unwrap();
        let status = head[9..12].parse().unwrap();
        Reply { status, head, body: Vec::new() }
    }

    pub(crate) fn reply(&mut self, method: &str) -> Reply {
        let mut reply = self.head();
        if method == "HEAD" || matches!(reply.status, 101 | 204 | 304) {
            return reply;
        }
        if let Some(len) = reply.header("content-length") {
            let len = len.parse().unwrap();
            reply.body = self.exactly(len);
            return reply;
        }
        assert!(reply.header("transfer-encoding").is_some(), "{}", reply.head);
        loop {
            let line = String::from_utf8(self.until(b"\r\n")).unwrap();
            let len = usize::from_str_radix(line.trim(), 16).unwrap();
            reply.body.extend(self.exactly(len));
            self.exactly(2);
            if len == 0 {
                return reply;
            }
        }
    }

    /// Reads more; `false` at the end.
    pub(crate) fn fill(&mut self) -> bool {
        let mut room = vec![0; 64 << 10];
        match self.socket.read(&mut room) {
            Ok(0) => false,
            Ok(n) => {
                self.read.extend_from_slice(&room[..n]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    // ---- WebSockets ----

    pub(crate) fn upgrade(&mut self, path: &str) -> Reply {
        self.upgrade_with(path, "")
    }

    pub(crate) fn upgrade_with(&mut self, path: &str, headers: &str) -> Reply {
        self.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{headers}\r\n"
        ));
        self.reply("GET")
    }

    pub(crate) fn message(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode];
        match payload.len() {
            len @ 0..=125 => frame.push(0x80 | len as u8),
            len @ 126..=0xFFFF => {
                frame.push(0x80 | 0x7E);
                frame.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                frame.push(0x80 | 0x7F);
                frame.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        // A mask of zeros.
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        self.send(frame);
    }

    /// The next frame that is no ping.
    pub(crate) fn frame(&mut self) -> (u8, Vec<u8>) {
        loop {
            let head = self.exactly(2);
            let len = match head[1] {
                126 => u16::from_be_bytes(self.exactly(2).try_into().unwrap()).into(),
                127 => u64::from_be_bytes(self.exactly(8).try_into().unwrap()) as usize,
                len => usize::from(len),
            };
            let payload = self.exactly(len);
            if head[0] & 15 != 9 {
                return (head[0] & 15, payload);
            }
        }
    }
}
