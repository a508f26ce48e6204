//! The program in a process of its own, and a client of plain sockets.

use rookery_test_support::TEST_TIMEOUT;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The program.
pub(crate) fn rookery() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rookery"));
    hears_all(&mut command);
    command
}

/// Has a command hear the signals that whoever runs the tests may ignore: nohup the first, and a shell the others for what it runs in the
/// background; that would be inherited.
pub(crate) fn hears_all(command: &mut Command) {
    let hears = || {
        for number in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: async-signal-safe, and the numbers are those of signals.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: it allocates nothing and takes no lock.
    unsafe { command.pre_exec(hears) };
}

/// A running program; killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// What it has said on stderr so far.
    pub(crate) said: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let until = Instant::now() + TEST_TIMEOUT;
        let mut child = loop {
            match command.spawn() {
                Ok(child) => break child,
                // A copy of the program, which another test's child has open for writing until it becomes what it is to be.
                Err(error)
                    if error.kind() == io::ErrorKind::ExecutableFileBusy
                        && Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("it does not start: {error}"),
            }
        };
        let stderr = BufReader::new(child.stderr.take().expect("it was piped"));
        Running { child, stderr, said: String::new() }
    }

    /// Reads stderr until a line has `words`; all of that line.
    pub(crate) fn await_line(&mut self, words: &str) -> String {
        loop {
            self.await_words(words);
            let mut line = String::new();
            let read = self.stderr.read_line(&mut line).expect("it is text");
            assert!(read > 0, "it never said {words:?}, but:\n{}", self.said);
            self.said += &line;
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Waits until it says something.
    fn await_words(&self, words: &str) {
        if self.stderr.buffer().is_empty() {
            let mut of = libc::pollfd {
                fd: self.stderr.get_ref().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let patience = i32::try_from(TEST_TIMEOUT.as_millis()).expect("a minute");
            // SAFETY: one descriptor, which is open.
            let ready = unsafe { libc::poll(&raw mut of, 1, patience) };
            assert!(ready != 0, "it does not say {words:?}, but:\n{}", self.said);
        }
    }

    /// The port that it serves on.
    pub(crate) fn port(&mut self) -> u16 {
        let line = self.await_line("Serving on ");
        let url = line.split(' ').nth(2).expect("an address");
        url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, number: i32) {
        // SAFETY: a child that has not been waited for: the id is its.
        assert_eq!(
            unsafe { libc::kill(i32::try_from(self.child.id()).expect("a process id"), number) },
            0
        );
    }

    /// How it ended, and what it has written on stdout.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let until = Instant::now() + TEST_TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(Instant::now() < until, "it does not end:\n{}", self.said);
            std::thread::sleep(Duration::from_millis(5));
        };
        self.stderr.read_to_string(&mut self.said).expect("it is text");
        let mut out = String::new();
        self.child
            .stdout
            .take()
            .expect("it was piped")
            .read_to_string(&mut out)
            .expect("it is text");
        (status, out)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    folder
}

/// All that is answered to a request, on a connection of its own.
pub(crate) fn ask(port: u16, request: &str) -> String {
    let mut stream = connect(port);
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) fn get(port: u16, path: &str) -> String {
    ask(port, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
}

pub(crate) fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a time");
    stream
}

/// Makes a file that can be run.
pub(crate) fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its owner");
}
