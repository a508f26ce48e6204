//! The command `rookery status --watch`, which shows the status of one server in a terminal and
//! draws it again every second. It adds to the text of `rookery status` what only the live page
//! has, whose events it reads over the server's Unix socket.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read, Write};
use std::path::Path;
use std::time::Duration;

use rookery_status::{AdminAddress, format_duration, visible_text};
use serde_json::Value;

use super::local_socket;
use super::status::{StatusArgs, find_server, text_of};
use super::trend::Trends;
use crate::failure::Failure;
use crate::terminal::window_size;

/// The time without an event after which the server counts as hung. An event arrives every second.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length in bytes of an event. The largest part of an event is the figures of routes,
/// of which there are at most a few hundred.
const MAX_EVENT_SIZE: u64 = 16 << 20;

/// The maximum number of routes that are shown.
const MAX_ROUTES: usize = 10;

/// Shows the status of a server until the server ends or the output is closed.
///
/// # Errors
/// Fails if no server, or more than one server, matches, or if the server does not respond.
pub(crate) fn watch(args: &StatusArgs) -> Result<(), Failure> {
    let unavailable = |error: &io::Error| {
        Failure::Unavailable(format!("The status of the server cannot be read: {error}."))
    };
    let place = find_server("rookery status --watch", args.which.as_deref())?;
    let AdminAddress::Unix(socket) = &place else {
        return Err(Failure::CommandLine(
            "`--watch` reads the Unix socket of a server. Name the server by its app or its \
             process id, or open its live page in a browser."
                .to_owned(),
        ));
    };
    let events = connect(socket).map_err(|error| unavailable(&error))?;
    match show(events, || text_of(&place)) {
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
    match status.split(' ').nth(1) {
        Some("200") => {}
        Some("503") => return Err(io::Error::other("too many people watch this server")),
        _ => return Err(io::Error::other("its program is of another version of Rookery")),
    }
    while next_line(&mut reader)?.is_some_and(|line| !line.is_empty()) {}
    Ok(reader)
}

/// Reads events and shows them until the stream ends. `status` requests the text of
/// `rookery status`, which fails once the server has ended.
fn show(mut events: impl BufRead, status: impl Fn() -> io::Result<String>) -> io::Result<()> {
    let (mut name, mut errors, mut rate) = (String::new(), Value::Null, Rate::default());
    let mut trends = Trends::default();
    while let Some(line) = next_line(&mut events)? {
        if let Some(event) = line.strip_prefix("event: ") {
            event.clone_into(&mut name);
        } else if let Some(data) = line.strip_prefix("data: ") {
            let data: Value = serde_json::from_str(data)?;
            match name.as_str() {
                "errors" => errors = data,
                "history" => trends.load(&data),
                "snapshot" => {
                    let Ok(status) = status() else { return Ok(()) };
                    if rate.update(&data) {
                        let [requests, ..] = rate.per_second.unwrap_or_default();
                        trends.update(&data, requests);
                    }
                    draw(&lines(&status, (&rate, &trends), &data, &errors))?;
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

/// The work of a server per second between its last two snapshots: requests and messages, flushes
/// of Shiny, and bytes to Shiny's pages.
#[derive(Debug, Default)]
struct Rate {
    /// The time of the last snapshot in seconds, and the numbers until then.
    last: Option<(f64, [f64; 3])>,
    per_second: Option<[f64; 3]>,
}

impl Rate {
    /// Adds a snapshot. A snapshot that follows the one before at once, because another viewer has
    /// come, is left out. Returns true if there is a new rate.
    fn update(&mut self, snapshot: &Value) -> bool {
        let (clock, report) = (number(&snapshot["clock"]), &snapshot["report"]);
        let requests = list(&report["routes"]).map(|it| number(&it["requests"])).sum();
        let shiny = &report["shiny"];
        let now = [requests, number(&shiny["flushes"]), number(&shiny["page_bytes"])];
        let (before, counted) = self.last.unwrap_or((clock - 1.0, now));
        if clock - before >= 0.5 {
            self.per_second = self
                .last
                .map(|_| std::array::from_fn(|at| (now[at] - counted[at]) / (clock - before)));
            self.last = Some((clock, now));
            return self.per_second.is_some();
        }
        false
    }
}

/// Returns the lines of the sessions of Shiny for which it has computed for longest, with their
/// numbers. Returns no line if there has been no session.
fn session_lines(shiny: &Value, rate: &Rate) -> Vec<String> {
    let [idle, computing, expected] =
        ["idle", "computing", "expected"].map(|state| number(&shiny[state]));
    if idle + computing + expected + number(&shiny["flushes"]) == 0.0 {
        return Vec::new();
    }
    let mut lines = vec![String::new()];
    let mut about =
        format!("sessions of Shiny: {computing} computing, {idle} idle, {expected} expected");
    if let Some([_, flushes, bytes]) = rate.per_second {
        let bytes = size(bytes);
        let _ = write!(about, "; {flushes:.1} flushes and {bytes} per second to pages");
    }
    lines.push(about);
    let row = |session: &str, open: &str, bytes: &str, time: &str, computes: &str| {
        format!("{session:>10}  {open:>11}  {bytes:>9}  {time:>11}  {computes}")
    };
    lines.push(row("session", "open for", "to page", "for", "computes"));
    lines.extend(list(&shiny["sessions"]).take(MAX_ROUTES).map(|session| {
        let time = |value: &Value| value.as_f64().map_or("-".to_owned(), |ms| duration(ms / 1e3));
        let computes = session["computes"].as_str().map_or("-".to_owned(), visible_text);
        row(
            &text(&session["id"]),
            &time(&session["opened_ms"]),
            &size(number(&session["page_bytes"])),
            &time(&session["computes_ms"]),
            &computes,
        )
    }));
    lines
}

/// Returns a number of bytes as text.
fn size(bytes: f64) -> String {
    match bytes {
        0.0..1e3 => format!("{bytes:.0} B"),
        1e3..1e6 => format!("{:.1} kB", bytes / 1e3),
        _ => format!("{:.1} MB", bytes / 1e6),
    }
}

/// Returns the lines of the outputs of Shiny that have taken most time, with a title. Returns no
/// line if Shiny has computed no output.
fn output_lines(outputs: &Value) -> Vec<String> {
    let mut outputs: Vec<&Value> = list(outputs).collect();
    if outputs.is_empty() {
        return Vec::new();
    }
    outputs.sort_by(|a, b| number(&b["r"]["sum"]).total_cmp(&number(&a["r"]["sum"])));
    let row = |computed: &str, mean: &str, sum: &str, output: &str| {
        format!("{computed:>10}  {mean:>11}  {sum:>11}  {output}")
    };
    let mut lines = vec![String::new(), row("computed", "mean", "in all", "output of Shiny")];
    lines.extend(outputs.into_iter().take(MAX_ROUTES).map(|output| {
        let times = &output["r"];
        row(
            &times["count"].to_string(),
            &mean(times),
            &duration(number(&times["sum"])),
            &text(&output["output"]),
        )
    }));
    lines
}

/// Returns what is shown: the text of `rookery status`, the rate of requests, the times of the
/// most requested routes, and the last errors in R.
fn lines(
    status: &str,
    (rate, trends): (&Rate, &Trends),
    snapshot: &Value,
    errors: &Value,
) -> Vec<String> {
    let mut lines: Vec<String> = status.lines().map(visible_text).collect();
    let requests =
        rate.per_second.map_or("-".to_owned(), |[requests, ..]| format!("{requests:.1}"));
    lines.extend([String::new(), format!("{requests} requests and messages per second")]);
    lines.extend(trends.lines());
    let mut routes: Vec<&Value> = list(&snapshot["report"]["routes"]).collect();
    routes.sort_by_key(|route| std::cmp::Reverse(route["requests"].as_u64()));
    let mut row = |cells: [&str; 6]| {
        let [requests, errors, mean, waited, in_r, route] = cells;
        lines.push(format!(
            "{requests:>10}  {errors:>8}  {mean:>11}  {waited:>11}  {in_r:>11}  {route}"
        ));
    };
    row(["requests", "errors", "mean", "waited", "in R", "route"]);
    for route in routes.into_iter().take(MAX_ROUTES) {
        row([
            &route["requests"].to_string(),
            &route["errors"].to_string(),
            &mean(&route["duration"]),
            &mean(&route["queue"]),
            &mean(&route["r"]),
            &text(&route["route"]),
        ]);
    }
    lines.extend(session_lines(&snapshot["report"]["shiny"], rate));
    lines.extend(output_lines(&snapshot["report"]["outputs"]));
    let has_errors = list(errors).next().is_some();
    let title = if has_errors { "the last errors in R" } else { "no errors in R" };
    lines.extend([String::new(), title.to_owned()]);
    for error in list(errors) {
        let ago = duration(number(&snapshot["at"]) - number(&error["at"]));
        let request = match text(&error["request_id"]) {
            id if id.is_empty() => id,
            id => format!(", request {id}"),
        };
        let place = [text(&error["route"]), text(&error["label"])].join(" ");
        let message = error["message"].as_str().and_then(|it| it.lines().next());
        lines.push(format!(
            "{ago} ago, worker {}{request}: {}: {}",
            error["slot"],
            place.trim(),
            visible_text(message.unwrap_or_default())
        ));
        // The innermost calls say most.
        let calls: Vec<&str> = error["trace"].as_str().unwrap_or_default().lines().collect();
        let inner = &calls[calls.len().saturating_sub(3)..];
        lines.extend(inner.iter().map(|call| format!("    {}", visible_text(call))));
    }
    lines
}

/// Writes a picture to standard output. On a terminal, the picture replaces the one before, and is
/// cut to the size of the window. In a file or pipe, the pictures follow one another.
fn draw(lines: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        out.write_all(picture(lines, window_size::rows_of_stdout()).as_bytes())?;
    } else {
        writeln!(out, "{}\n", lines.join("\n"))?;
    }
    out.flush()
}

/// Returns the text that replaces the contents of a terminal by `lines`.
fn picture(lines: &[String], rows: usize) -> String {
    // Lines are not wrapped meanwhile (DECAWM), so that the terminal cuts them. A line that filled
    // the last row would scroll the screen.
    let mut text = "\x1b[?7l\x1b[H".to_owned();
    for line in lines.iter().take(rows.saturating_sub(1).max(1)) {
        text += line;
        text += "\x1b[K\r\n";
    }
    // Erases what a longer picture has left.
    text += "\x1b[J\x1b[?7h";
    text
}

/// Returns a text of an event, in which characters that could change the state of a terminal are
/// replaced.
fn text(value: &Value) -> String {
    visible_text(value.as_str().unwrap_or_default())
}

/// Returns a number of an event, or 0 if it is missing.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn duration(seconds: f64) -> String {
    format_duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Returns the mean of a histogram's observations.
fn mean(histogram: &Value) -> String {
    match number(&histogram["count"]) {
        0.0 => "-".to_owned(),
        count => duration(number(&histogram["sum"]) / count),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(clock: f64, requests: u64) -> Value {
        json!({
            "at": 1000.0, "clock": clock,
            "report": { "routes": [
                { "route": "/a\u{202e}", "requests": 1, "errors": 0 },
                { "route": "/slow", "requests": requests, "errors": 1,
                  "duration": { "count": 10, "sum": 5.0 }, "queue": { "count": 10, "sum": 0.0 },
                  "r": { "count": 0, "sum": 0.0 } },
            ] },
        })
    }

    fn shown(status: &str, errors: &Value) -> String {
        lines(status, (&Rate::default(), &Trends::default()), &snapshot(1.0, 10), errors).join("\n")
    }

    #[test]
    fn routes_and_errors_follow_the_text_of_the_status() {
        let errors = json!([{
            "at": 997.0, "slot": 0, "request_id": "5cf0", "route": "GET /slow", "label": "handler",
            "message": "first line\nsecond line", "trace": "a()\nb()\nc()\nd()",
        }]);
        let shown = shown("rookery 0.1.0\nworker  process", &errors);
        for line in [
            "rookery 0.1.0\nworker  process\n\n- requests and messages per second\n",
            "\n        10         1       500 ms         0 ms            -  /slow\n",
            "\n3.0 s ago, worker 0, request 5cf0: GET /slow handler: first line\n    b()\n    c()\n    \
             d()",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        assert!(!shown.contains("second line") && !shown.contains("a()"), "{shown}");
        assert!(shown.find("/slow") < shown.find("/a"), "{shown}");
    }

    #[test]
    fn the_outputs_that_took_most_time_come_first() {
        let outputs = json!([
            { "output": "table", "r": { "count": 8, "sum": 1.0 } },
            { "output": "plot\u{202e}", "r": { "count": 2, "sum": 3.0 } },
        ]);
        let shown = output_lines(&outputs).join("\n");
        assert!(shown.contains("\n         2        1.5 s        3.0 s  plot"), "{shown}");
        assert!(shown.find("plot") < shown.find("table"), "{shown}");
        assert!(!shown.contains('\u{202e}'), "{shown}");
        assert!(output_lines(&json!([])).is_empty());
    }

    #[test]
    fn each_session_has_what_shiny_computes_for_it() {
        let shiny = json!({
            "idle": 1, "computing": 1, "expected": 0, "flushes": 7, "page_bytes": 1, "sessions": [
                { "id": "0123abcd", "opened_ms": 61_000, "page_bytes": 12_345, "computes_ms": 2500,
                  "computes": "fit < <observer:output$plot>\u{202e}" },
                { "id": "idle", "opened_ms": 10, "page_bytes": 7, "computes_ms": null,
                  "computes": null },
            ],
        });
        let rate = Rate { last: None, per_second: Some([1.0, 2.0, 3e6]) };
        let shown = session_lines(&shiny, &rate).join("\n");
        for line in [
            "\nsessions of Shiny: 1 computing, 1 idle, 0 expected; 2.0 flushes and 3.0 MB per second",
            "\n  0123abcd    1 min 1 s    12.3 kB        2.5 s  fit < <observer:output$plot>",
            "\n      idle        10 ms        7 B            -  -",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        assert!(!shown.contains('\u{202e}'), "{shown}");
        assert!(session_lines(&Value::Null, &rate).is_empty());
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let errors = json!([{ "message": "\x1b[2J\u{2067}", "trace": "f(\x1b[31m\u{202d})" }]);
        let shown = shown("/srv/\x1b]0;title\x07", &errors).replace('\n', "");
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert!(!shown.contains(['\u{2067}', '\u{202d}', '\u{202e}']), "{shown:?}");
    }

    #[test]
    fn an_incomplete_report_is_shown_as_far_as_it_goes() {
        for snapshot in [Value::Null, json!({}), json!({ "report": { "routes": [{}] } })] {
            let shown = lines("", (&Rate::default(), &Trends::default()), &snapshot, &Value::Null)
                .join("\n");
            assert!(shown.contains("no errors in R"), "{shown}");
        }
    }

    #[test]
    fn the_rate_is_that_between_two_snapshots() {
        let mut rate = Rate::default();
        for (clock, requests, expected) in
            [(5.0, 10, None), (7.0, 30, Some(10.0)), (7.1, 31, Some(10.0)), (8.0, 32, Some(2.0))]
        {
            rate.update(&snapshot(clock, requests));
            assert_eq!(rate.per_second.map(|it| it[0]), expected, "{clock}");
        }
    }

    #[test]
    fn lines_of_any_ending_are_read_and_the_end_is_detected() {
        let mut reader = &b"a\r\nb\n\nc"[..];
        let mut next = || next_line(&mut reader).unwrap();
        assert_eq!([next(), next(), next()], ["a", "b", ""].map(|line| Some(line.to_owned())));
        assert_eq!([next(), next()], [Some("c".to_owned()), None]);
    }

    #[test]
    fn a_picture_is_not_wrapped_and_fits_into_the_window() {
        let lines = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let text = picture(&lines, 3);
        assert!(text.starts_with("\x1b[?7l\x1b[H") && text.ends_with("\x1b[J\x1b[?7h"), "{text:?}");
        assert_eq!(
            (text.matches("\r\n").count(), picture(&lines, 0).matches("\r\n").count()),
            (2, 1)
        );
    }

    #[test]
    fn an_event_that_is_not_json_ends_the_command() {
        let status = || Ok(String::new());
        let error = show(&b"event: snapshot\ndata: {\n\n"[..], status).unwrap_err();
        assert!(error.to_string().contains("EOF"), "{error}");
        assert!(show(&b"event: another\ndata: {}\n\n: comment\n\n"[..], status).is_ok());
    }
}
