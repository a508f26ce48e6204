//! A running program, and a client with plain sockets.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub(crate) use rookery_test_support::TEST_TIMEOUT;

/// Returns a command that runs the program.
pub(crate) fn rookery() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rookery"));
    restore_signals(&mut command);
    command
}

/// Restores the default handling of signals in a command. The process that runs the tests may
/// ignore signals, as under `nohup` or in the background of a shell, and ignored signals are
/// inherited.
pub(crate) fn restore_signals(command: &mut Command) {
    let restore = || {
        for number in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: the call is async-signal-safe, and the numbers are those of signals.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(restore) };
}

/// A running program, which is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    reader: BufReader<ChildStderr>,
    /// The text on standard error so far.
    pub(crate) stderr: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let until = Instant::now() + TEST_TIMEOUT;
        let mut child = loop {
            match command.spawn() {
                Ok(child) => break child,
                // The file is busy while a child process of another test has inherited it open for
                // writing.
                Err(error)
                    if error.kind() == io::ErrorKind::ExecutableFileBusy
                        && Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("it does not start: {error}"),
            }
        };
        let reader = BufReader::new(child.stderr.take().expect("it was piped"));
        Running { child, reader, stderr: String::new() }
    }

    /// Reads standard error until a line contains `words`, and returns the line.
    pub(crate) fn await_line(&mut self, words: &str) -> String {
        loop {
            self.wait_for_output(words);
            let mut line = String::new();
            let read = self.reader.read_line(&mut line).expect("it is text");
            assert!(read > 0, "it never printed {words:?}, but:\n{}", self.stderr);
            self.stderr += &line;
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Waits until standard error has more text.
    fn wait_for_output(&self, words: &str) {
        if self.reader.buffer().is_empty() {
            let mut of = libc::pollfd {
                fd: self.reader.get_ref().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let timeout = i32::try_from(TEST_TIMEOUT.as_millis()).expect("a minute");
            // SAFETY: `of` is one valid entry with an open descriptor.
            let ready = unsafe { libc::poll(&raw mut of, 1, timeout) };
            assert!(ready != 0, "it does not print {words:?}, but:\n{}", self.stderr);
        }
    }

    /// Returns the port from the start-up screen.
    pub(crate) fn port(&mut self) -> u16 {
        let line = self.await_line("Serving on ");
        let (_, rest) = line.split_once("Serving on ").expect("the words");
        let url = rest.split(' ').next().expect("an address");
        url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, number: i32) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        // SAFETY: the child has not been waited for, so the process id is its own.
        assert_eq!(unsafe { libc::kill(pid, number) }, 0);
    }

    /// Waits for the end of the program. Returns its status and its standard output.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let until = Instant::now() + TEST_TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(Instant::now() < until, "it does not end:\n{}", self.stderr);
            std::thread::sleep(Duration::from_millis(5));
        };
        self.reader.read_to_string(&mut self.stderr).expect("it is text");
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

/// Creates a folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    folder
}

/// Sends a request on a new connection, and returns the whole response.
pub(crate) fn ask(port: u16, request: &str) -> String {
    let mut stream = connect(port);
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) fn get(port: u16, path: &str) -> String {
    ask(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

/// Reads the head of a request, with the empty line that ends it.
pub(crate) fn read_head(stream: &mut impl io::Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

pub(crate) fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a time");
    stream
}

/// Writes an executable file.
pub(crate) fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its owner");
}

/// Opens a pseudo-terminal. Returns the side of the user, and the terminal itself.
pub(crate) fn open_terminal() -> (fs::File, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: both descriptors have space, and neither a name nor settings of the terminal are
    // requested.
    let opened = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut slave,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(opened, 0);
    // SAFETY: the descriptors were just opened, and no other code owns them.
    unsafe { (fs::File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}
