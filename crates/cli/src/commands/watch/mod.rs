//! The command `rookery status --watch`, which shows the status of one server in a terminal and
//! draws it again every second. It reads the events of the live page over the server's Unix socket.

mod figures;
mod frame;
mod json_text;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use rookery_status::AdminAddress;
use serde_json::Value;

use self::figures::Figures;
use self::frame::Frame;
use super::local_socket;
use super::status::{StatusArgs, find_server};
use crate::failure::Failure;
use crate::terminal::{startup_screen, window_size};

/// The time without an event after which the server counts as hung. An event arrives every second.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length in bytes of an event. The largest part of an event is the figures of routes,
/// of which there are at most a few hundred.
const MAX_EVENT_SIZE: u64 = 16 << 20;

/// Shows the status of a server until the server ends or the output is closed.
///
/// # Errors
/// Fails if no server, or more than one server, matches, or if the server does not respond.
pub(crate) fn watch(args: &StatusArgs) -> Result<(), Failure> {
    let unavailable = |error: &io::Error| {
        Failure::Unavailable(format!("The status of the server cannot be read: {error}."))
    };
    let socket = match find_server("rookery status --watch", args.which.as_deref())? {
        AdminAddress::Unix(path) => path,
        AdminAddress::Tcp(address) => {
            return Err(Failure::CommandLine(format!(
                "`--watch` reads the Unix socket of a server, and {address} is none. Name the \
                 server by its app or its process id, or open its live page in a browser."
            )));
        }
    };
    let events = connect(&socket).map_err(|error| unavailable(&error))?;
    let screen = Screen::of_stdout();
    match show(events, &screen) {
        Ok(()) => Err(Failure::Unavailable("The server has ended.".to_owned())),
        // The reader of the output, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(unavailable(&error)),
    }
}

fn connect(socket: &Path) -> io::Result<impl BufRead + use<>> {
    let mut stream = local_socket::connect(socket, TIMEOUT)?;
    // With HTTP/1.0 the response is not chunked.
    write!(stream, "GET /live/events HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut reader = BufReader::new(stream);
    let status = next_line(&mut reader)?.unwrap_or_default();
    if status.split(' ').nth(1) == Some("503") {
        return Err(io::Error::other("too many people watch this server"));
    }
    if status.split(' ').nth(1) != Some("200") {
        return Err(io::Error::other("its program is of another version of Rookery"));
    }
    while next_line(&mut reader)?.is_some_and(|line| !line.is_empty()) {}
    Ok(reader)
}

/// Reads events and shows them until the stream ends.
fn show(mut events: impl BufRead, screen: &Screen) -> io::Result<()> {
    let (mut name, mut errors) = (String::new(), Value::Null);
    let mut figures = Figures::default();
    while let Some(line) = next_line(&mut events)? {
        if let Some(event) = line.strip_prefix("event: ") {
            event.clone_into(&mut name);
        } else if let Some(data) = line.strip_prefix("data: ") {
            let data: Value = serde_json::from_str(data)?;
            match name.as_str() {
                "errors" => errors = data,
                "snapshot" => {
                    figures.update(&data);
                    screen.draw(&Frame { snapshot: &data, figures: &figures, errors: &errors })?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Reads a line without its end. Returns `None` at the end of the stream.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let len =
        reader.by_ref().take(MAX_EVENT_SIZE).read_line(&mut line).map_err(|error| {
            match error.kind() {
                io::ErrorKind::WouldBlock => {
                    io::Error::new(io::ErrorKind::TimedOut, "it did not respond in time")
                }
                _ => error,
            }
        })?;
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok((len > 0).then_some(line))
}

/// Standard output: a terminal, on which each frame replaces the one before, or a file or pipe, to
/// which the frames are written one after the other.
struct Screen {
    is_terminal: bool,
    is_coloured: bool,
}

impl Screen {
    fn of_stdout() -> Screen {
        let is_terminal = io::IsTerminal::is_terminal(&io::stdout());
        Screen { is_terminal, is_coloured: startup_screen::is_coloured_on(is_terminal) }
    }

    fn draw(&self, frame: &Frame<'_>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.is_terminal {
            let lines = frame.lines(usize::MAX, usize::MAX, self.is_coloured);
            writeln!(out, "{}\n", lines.join("\n"))?;
            return out.flush();
        }
        // The size is read each time, because the window may have been resized. A line that
        // filled the last row would scroll the screen.
        let (columns, rows) = window_size::of_stdout();
        let lines = frame.lines(columns, rows.saturating_sub(1).max(1), self.is_coloured);
        out.write_all(picture(&lines).as_bytes())?;
        out.flush()
    }
}

/// Returns the text that replaces the contents of a terminal by `lines`.
fn picture(lines: &[String]) -> String {
    // Lines are not wrapped meanwhile (DECAWM), because some characters take two columns.
    let mut text = "\x1b[?7l\x1b[H".to_owned();
    for line in lines {
        text += line;
        text += "\x1b[K\r\n";
    }
    // Erases what a longer frame has left.
    text += "\x1b[J\x1b[?7h";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_ending_are_read_and_the_end_is_detected() {
        let mut reader = &b"a\r\nb\n\nc"[..];
        let mut next = || next_line(&mut reader).unwrap();
        assert_eq!([next(), next(), next()], ["a", "b", ""].map(|line| Some(line.to_owned())));
        assert_eq!([next(), next()], [Some("c".to_owned()), None]);
    }

    #[test]
    fn lines_are_not_wrapped_while_a_picture_is_drawn() {
        let text = picture(&["\u{65e5}\u{672c}".repeat(80), "b".to_owned()]);
        assert!(text.starts_with("\x1b[?7l\x1b[H") && text.ends_with("\x1b[J\x1b[?7h"), "{text:?}");
        assert_eq!(text.matches("\r\n").count(), 2);
    }

    #[test]
    fn an_event_that_is_not_json_ends_the_command() {
        let screen = Screen { is_terminal: false, is_coloured: false };
        let error = show(&b"event: snapshot\ndata: {\n\n"[..], &screen).unwrap_err();
        assert!(error.to_string().contains("EOF"), "{error}");
        assert!(show(&b"event: another\ndata: {}\n\n: comment\n\n"[..], &screen).is_ok());
    }
}
