//! The command `rookery status`, which prints the status of running servers. It requests the status
//! from the admin listener of each server.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rookery_status::{AdminAddress, admin_socket, run_folders};
use serde_json::Value;

use super::local_socket;
use crate::failure::Failure;
use crate::settings::serve_settings::admin_address;
use crate::stderr::print_lines;
use crate::user_paths::absolute;

/// The arguments of `rookery status`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "rookery status [<app>, process id, or address of --admin] [--json | --watch]",
    long_about = "Shows the state of servers and of their workers, also while R is busy. Without an \
                  argument,\nit shows all servers of this user. An argument selects one server by \
                  the path of its app,\nby its process id, or by the address or socket that was \
                  given as --admin."
)]
pub(crate) struct StatusArgs {
    /// The selected server: the path of an app, a process id or an admin address. `None` selects
    /// all servers of this user.
    #[arg(hide = true)]
    pub(crate) which: Option<OsString>,
    /// Print one line of JSON for each server, for programs.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the status of one server, drawn again every second, until Ctrl-C.
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
}

/// The maximum time for which `rookery status` waits for the response of a server. Normally a
/// server responds at once, even while R is busy.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The time after which a command that waits for the response of a server says so.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// The maximum size in bytes of a server's response. It is enough for the status of more than a
/// thousand workers, and for the file of a profile.
const MAX_RESPONSE_SIZE: u64 = 20 << 20;

/// The URL path at which a server returns its status as text for people.
const TEXT: &str = "/status.txt";
const JSON: &str = "/status";

/// Returns the output of `rookery status`: the status of the selected servers.
///
/// # Errors
/// Fails if no server matches, or if a matching server does not respond.
pub(crate) fn query(args: &StatusArgs) -> Result<Vec<u8>, Failure> {
    let path = if args.json { JSON } else { TEXT };
    let which = args.which.as_deref();
    if let Some((which, place)) = which.and_then(|which| Some((which, parse_address(which)?))) {
        return get(&place, path).map_err(|error| {
            Failure::Unavailable(format!(
                "No server responds at {}: {error}.",
                Path::new(which).display()
            ))
        });
    }
    let wanted = which.map(Selector::parse);
    let (found, errors) = query_all("rookery status", wanted.as_ref(), path)?;
    let texts: Vec<Vec<u8>> = found.into_iter().map(|(.., body)| body).collect();
    let mut text = texts.join(if args.json { &b""[..] } else { b"\n" });
    for error in errors {
        text.extend_from_slice(error.as_bytes());
        text.push(b'\n');
    }
    Ok(text)
}

/// Returns the admin address of the only server that `which` selects, or of the only server of this
/// user if it is `None`. `command` is the command that needs it, for error messages.
///
/// # Errors
/// Fails if no server or more than one server matches.
pub(crate) fn find_server(command: &str, which: Option<&OsStr>) -> Result<AdminAddress, Failure> {
    if let Some(place) = which.and_then(parse_address) {
        return Ok(place);
    }
    let wanted = which.map(Selector::parse);
    let (found, _) = query_all(command, wanted.as_ref(), TEXT)?;
    match &found[..] {
        [(_, place, _)] => Ok(place.clone()),
        several => {
            let pids: Vec<String> = several.iter().map(|(pid, ..)| pid.to_string()).collect();
            Err(Failure::CommandLine(format!(
                "`{command}` is for one server, and several match: the processes {}. Name one of \
                 them.",
                pids.join(", ")
            )))
        }
    }
}

/// A server, by its process id and its admin address, and its response.
type Queried = (u32, AdminAddress, Vec<u8>);

/// Requests `path` from the servers that `wanted` selects, or from all servers if it is `None`.
/// Finds the servers by their admin sockets in the usual folders. Also returns an error message for
/// each server that does not respond.
fn query_all(
    command: &str,
    wanted: Option<&Selector>,
    path: &str,
) -> Result<(Vec<Queried>, Vec<String>), Failure> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for (pid, place) in admin_sockets() {
        match query_server(pid, &place, wanted, path) {
            Ok(Some(body)) => found.push((pid, place, body)),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    if found.is_empty() {
        return Err(Failure::Unavailable(not_found_message(command, wanted, &errors)));
    }
    Ok((found, errors))
}

/// Requests `path` from the server with the process id `pid`. Returns `None` if `wanted` selects
/// another server, or if the server no longer exists.
///
/// # Errors
/// Fails if the server does not respond, unless `wanted` is the process id of another server. If
/// `wanted` is an app, a server that does not respond may be the one that serves it.
fn query_server(
    pid: u32,
    place: &AdminAddress,
    wanted: Option<&Selector>,
    path: &str,
) -> Result<Option<Vec<u8>>, String> {
    let ask = |path, fault| match get(place, path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_stopped(&error) => Ok(None),
        Err(error) => Err(format!(
            "Process {pid} {fault}: {error}. Its socket is {}. If this lasts, look into its log, \
             and restart it.",
            show(place)
        )),
    };
    match wanted {
        Some(Selector::Process(id)) if *id != pid => return Ok(None),
        Some(Selector::App(app)) => {
            // A server that does not respond may be the one that serves the app.
            let report = ask(JSON, "does not report what it serves")?;
            // The server reports the path that it was given, which may contain symbolic links.
            let resolved = |path: String| fs::canonicalize(&path).unwrap_or_else(|_| path.into());
            let target = report.as_deref().and_then(target_of);
            if target.is_none_or(|target| resolved(target) != *app) {
                return Ok(None);
            }
            if path == JSON {
                return Ok(report);
            }
        }
        _ => {}
    }
    ask(path, "does not respond")
}

fn not_found_message(command: &str, wanted: Option<&Selector>, errors: &[String]) -> String {
    if !errors.is_empty() {
        return errors.join("\n");
    }
    let none = match wanted {
        None => "No app server of this user is running on this machine".to_owned(),
        Some(Selector::Process(pid)) => {
            format!("Process {pid} is not an app server of this user")
        }
        Some(Selector::App(app)) => {
            format!("No app server of this user serves {}", app.display())
        }
    };
    format!(
        "{none}. A server with another TMPDIR is found by its `--admin` address: `{command} \
         unix:/path/of/the/socket`."
    )
}

/// Returns an admin address in the form in which a user can give it.
pub(crate) fn show(place: &AdminAddress) -> String {
    match place {
        AdminAddress::Tcp(address) => address.to_string(),
        AdminAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// Returns true if the error of a connection to a server's socket means that the server was killed
/// and only its socket file remains.
fn is_stopped(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// The server that the user selected for `rookery status`, by its process id or its app.
enum Selector {
    Process(u32),
    App(PathBuf),
}

impl Selector {
    fn parse(which: &OsStr) -> Selector {
        match which.to_str().and_then(|text| text.parse().ok()) {
            Some(pid) => Selector::Process(pid),
            None => {
                let path = absolute(Path::new(which));
                Selector::App(fs::canonicalize(&path).unwrap_or(path))
            }
        }
    }
}

/// Parses the argument of `rookery status` as an admin address or as the path of a Unix socket.
/// Returns `None` if it is neither.
fn parse_address(which: &OsStr) -> Option<AdminAddress> {
    if let Some(at) = which.to_str().and_then(admin_address) {
        return Some(at);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        let path = absolute(Path::new(which));
        let is_socket = fs::metadata(&path).is_ok_and(|found| found.file_type().is_socket());
        is_socket.then_some(AdminAddress::Unix(path))
    }
    #[cfg(windows)]
    None
}

/// Returns the admin sockets of this user's running servers, each with the server's process id.
fn admin_sockets() -> Vec<(u32, AdminAddress)> {
    let mut parents = vec![std::env::temp_dir()];
    // Servers use /tmp if the path in `TMPDIR` would be too long for a socket.
    if parents[0] != Path::new("/tmp") {
        parents.push("/tmp".into());
    }
    let folders = parents.iter().flat_map(|parent| run_folders(parent));
    let mut places: Vec<_> =
        folders.map(|(pid, folder)| (pid, AdminAddress::Unix(admin_socket(&folder)))).collect();
    places.sort_by_key(|(pid, _)| *pid);
    places
}

/// Returns what a server serves, such as the path of an app, from its report as JSON.
fn target_of(report: &[u8]) -> Option<String> {
    let report: Value = serde_json::from_slice(report).ok()?;
    report["target"].as_str().map(str::to_owned)
}

/// Requests the text of `rookery status` from a server, without a notice if that takes long.
///
/// # Errors
/// Returns an error if the server does not respond.
pub(super) fn text_of(place: &AdminAddress) -> io::Result<String> {
    let (_, body) = request_quietly(place, "GET", TEXT)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Requests `path` from a server. Returns the body of the response.
fn get(place: &AdminAddress, path: &str) -> io::Result<Vec<u8>> {
    match request(place, "GET", path)? {
        (200, body) => Ok(body),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the response is not that of a Rookery server")
}

/// Sends a request without a body to the admin listener of a server. Returns the status and the
/// body of the response. Tells the user if the response takes longer than [`NOTICE_AFTER`].
///
/// # Errors
/// Returns an error if the server does not respond, or if it is another program.
pub(crate) fn request(
    place: &AdminAddress,
    method: &str,
    path: &str,
) -> io::Result<(u16, Vec<u8>)> {
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let notice = move || {
            if is_done.recv_timeout(NOTICE_AFTER) == Err(RecvTimeoutError::Timeout) {
                print_lines(&format!(
                    "Waiting for the server at {}, for at most {} seconds",
                    show(place),
                    TIMEOUT.as_secs()
                ));
            }
        };
        // Without the thread, only the notice is missing.
        let _ = std::thread::Builder::new().spawn_scoped(scope, notice);
        let response = request_quietly(place, method, path);
        drop(done);
        response
    })
}

fn request_quietly(place: &AdminAddress, method: &str, path: &str) -> io::Result<(u16, Vec<u8>)> {
    match place {
        AdminAddress::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream, method, path)
        }
        AdminAddress::Unix(socket) => {
            exchange(local_socket::connect(socket, TIMEOUT)?, method, path)
        }
    }
}

fn exchange(mut stream: impl Read + Write, method: &str, path: &str) -> io::Result<(u16, Vec<u8>)> {
    // With HTTP/1.0 the response is not chunked, and ends with the connection.
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE_SIZE).read_to_end(&mut response).map_err(|error| {
        match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it has sent nothing for {} seconds", TIMEOUT.as_secs()),
            ),
            _ => error,
        }
    })?;
    let end =
        response.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(unexpected)?;
    let status = response.get(9..12).and_then(|status| std::str::from_utf8(status).ok());
    let status = status.filter(|_| response.starts_with(b"HTTP/1."));
    let status = status.and_then(|status| status.parse().ok()).ok_or_else(unexpected)?;
    Ok((status, response.split_off(end + 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_addresses_sockets_and_apps() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin");
        let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(parse_address(socket.as_os_str()), Some(AdminAddress::Unix(socket.clone())));
        assert_eq!(
            parse_address(OsStr::new("unix:/none/there")),
            Some(AdminAddress::Unix("/none/there".into()))
        );
        let address = "127.0.0.1:9100".parse().unwrap();
        assert_eq!(parse_address(OsStr::new("127.0.0.1:9100")), Some(AdminAddress::Tcp(address)));
        for other in ["1234", "app/", "/none/there"] {
            assert_eq!(parse_address(OsStr::new(other)), None, "{other}");
        }
        assert!(matches!(Selector::parse(OsStr::new("1234")), Selector::Process(1234)));
        assert!(matches!(Selector::parse(folder.path().as_os_str()), Selector::App(_)));
    }

    #[test]
    fn rejects_responses_that_are_not_from_a_rookery_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        for (response, kind) in [
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\ntext", None),
            ("HTTP/1.1 404 Not Found\r\n\r\ntext", Some(io::ErrorKind::InvalidData)),
            ("SSH-2.0\r\n", Some(io::ErrorKind::InvalidData)),
            ("", Some(io::ErrorKind::InvalidData)),
        ] {
            let listener = listener.try_clone().unwrap();
            let answers = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                // Reads the whole request, because the client would get a reset if the connection
                // were closed with unread bytes.
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.push(byte[0]);
                }
                stream.write_all(response.as_bytes()).unwrap();
            });
            let result = get(&AdminAddress::Unix(path.clone()), "/status");
            answers.join().unwrap();
            assert_eq!(result.as_ref().err().map(io::Error::kind), kind, "{response}: {result:?}");
        }
    }
}
