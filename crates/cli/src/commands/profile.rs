//! The command `rookery profile`, which records what the R processes of a running server spend
//! their time on, and writes the file of the profile. The server itself takes the profile and joins
//! the files of its workers: this command requests it, waits, and fetches it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rookery_status::{AdminAddress, DEFAULT_PROFILE_SECONDS, MAX_PROFILE_SECONDS};
use serde_json::Value;

use super::status::{find_server, request};
use crate::failure::Failure;
use crate::process::signals::Signals;
use crate::stderr::log_line;

/// The arguments of `rookery profile`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "rookery profile [<app>, process id, or address of --admin] [--seconds <n>] \
                      [--worker <n>] [--output <file>]",
    long_about = "Records for some seconds what the R code of a running server spends its \
                  processor time on,\nand writes a file in the format of Rprof(), which \
                  summaryRprof() and profvis read. The names\nof the routes are the outermost \
                  functions of each handler. It also prints a summary. The\nserver is found as by \
                  `rookery status`. Ctrl-C ends the profile early and writes what there is."
)]
pub(crate) struct ProfileArgs {
    /// The selected server: the path of an app, a process id or an admin address.
    #[arg(hide = true)]
    which: Option<OsString>,
    /// Number of seconds to record, from 1 to 300.
    #[arg(long, value_name = "n", default_value_t = DEFAULT_PROFILE_SECONDS,
          value_parser = clap::value_parser!(u64).range(1..=MAX_PROFILE_SECONDS))]
    seconds: u64,
    /// Profile only the worker with this number (default: all).
    #[arg(long, value_name = "n")]
    worker: Option<u32>,
    /// Write this file (default: rookery-profile.out, or a new name like it).
    #[arg(long, value_name = "file")]
    output: Option<PathBuf>,
}

/// The interval at which the state of the profile is requested.
const POLLS_EVERY: Duration = Duration::from_millis(200);

/// The maximum time that the end of a profile may take: the server waits a few seconds for R
/// processes that are busy.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of the file if none is given.
const DEFAULT_OUTPUT: &str = "rookery-profile.out";

/// The maximum number of functions in each list of the summary.
const MOST_FUNCTIONS: usize = 10;

/// Takes a profile and writes its file. Returns the summary of the profile for people.
///
/// # Errors
/// Fails if no server, or more than one server, matches, if another profile is running, and if the
/// file cannot be written.
pub(crate) fn take(args: &ProfileArgs) -> Result<Vec<u8>, Failure> {
    let signals = Signals::start()?;
    let place = find_server("rookery profile", args.which.as_deref())?;
    let mut output = Output::create(args.output.as_deref())?;
    let result = record(args, &place, &signals).and_then(|(state, file)| {
        output.write(&file)?;
        Ok(summary(&state, &output.path).into_bytes())
    });
    if result.is_err() {
        output.discard();
    }
    result
}

/// Records a profile. Returns its state, which includes its summary, and its file.
fn record(
    args: &ProfileArgs,
    place: &AdminAddress,
    signals: &Signals,
) -> Result<(Value, Vec<u8>), Failure> {
    let worker = args.worker.map_or_else(String::new, |worker| format!("&worker={worker}"));
    let action = format!("/live/actions/profile?seconds={}{worker}", args.seconds);
    let started = json_of(&ask(place, "POST", &action)?)?;
    // Another person may start the next profile as soon as this one ends.
    let number = started["number"].as_u64().ok_or_else(of_another_version)?;
    log_line(&format!("profiling for {} s (Ctrl-C ends the profile early)", args.seconds));
    let mut is_stopped = false;
    let mut until = Instant::now() + Duration::from_secs(args.seconds) + END_TIMEOUT;
    loop {
        let state = json_of(&ask(place, "GET", &format!("/live/profile?number={number}"))?)?;
        if state["state"] == "finished" {
            let file = ask(place, "GET", &format!("/live/profile/file?number={number}"))?;
            return Ok((state, file));
        }
        if Instant::now() >= until || state["state"] != "running" {
            return Err(Failure::Unavailable(
                "The server has not finished the profile: see its log.".to_owned(),
            ));
        }
        if let Some(signal) = signals.recv_timeout(POLLS_EVERY).filter(|signal| signal.is_stop()) {
            if std::mem::replace(&mut is_stopped, true) {
                signal.terminate_process();
            }
            // Fails if the profile has ended meanwhile, which the next request shows.
            let _ = ask(place, "POST", &format!("/live/actions/stop-profile?number={number}"));
            until = Instant::now() + END_TIMEOUT;
        }
    }
}

fn json_of(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|_| of_another_version())
}

fn of_another_version() -> Failure {
    Failure::Unavailable("The server is of another version of Rookery.".to_owned())
}

/// Sends a request to the admin listener, and returns the body of a successful response.
fn ask(place: &AdminAddress, method: &str, path: &str) -> Result<Vec<u8>, Failure> {
    let (status, body) = request(place, method, path)
        .map_err(|error| Failure::Unavailable(format!("The server does not respond: {error}.")))?;
    let why = String::from_utf8_lossy(&body).trim_end().to_owned();
    Err(Failure::Unavailable(match (status, place) {
        (200..=299, _) => return Ok(body),
        (403, AdminAddress::Tcp(address)) => format!(
            "{address} needs the token of the live page. Name the server by its app, its process \
             id or a Unix socket, or use the button of its live page."
        ),
        (405, _) => return Err(of_another_version()),
        _ => format!("The server has refused the profile: {why}."),
    }))
}

/// The file that a profile is written to. It is created before the profile begins, so that a wrong
/// path is noticed then.
struct Output {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl Output {
    fn create(chosen: Option<&Path>) -> Result<Output, Failure> {
        let failure = |path: &Path, error: &io::Error| {
            Failure::Unavailable(format!("{} cannot be written: {error}.", path.display()))
        };
        if let Some(path) = chosen {
            let is_new = !path.exists();
            // An existing file keeps its contents until the profile has been taken.
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            let file = file.map_err(|error| failure(path, &error))?;
            return Ok(Output { path: path.to_owned(), file, is_new });
        }
        // An existing file is replaced only if the user has chosen its name.
        for at in 1.. {
            let name = DEFAULT_OUTPUT.replace(".out", &format!("-{at}.out"));
            let path = PathBuf::from(if at == 1 { DEFAULT_OUTPUT } else { &name });
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Output { path, file, is_new: true }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && at < 1000 => {}
                Err(error) => return Err(failure(&path, &error)),
            }
        }
        unreachable!("the loop returns")
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let is_regular = self.file.metadata().is_ok_and(|file| file.is_file());
        let emptied = if is_regular { self.file.set_len(0) } else { Ok(()) };
        emptied.and_then(|()| self.file.write_all(bytes)).map_err(|error| {
            Failure::Unavailable(format!("{} cannot be written: {error}.", self.path.display()))
        })
    }

    /// Removes the file if this command has created it.
    fn discard(&self) {
        if self.is_new {
            // What cannot be removed is empty or incomplete, and its name is in the error message.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the summary of a profile as text.
fn summary(state: &Value, path: &Path) -> String {
    let summary = &state["summary"];
    let all = summary["seconds"].as_f64().unwrap_or(0.0);
    let samples = summary["samples"].as_u64().unwrap_or(0);
    let mut text = String::new();
    let workers = state["workers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let _ = writeln!(
        text,
        "{samples} samples of R ({} ms of processor time each) in {:.1} s are in {}",
        state["interval_ms"],
        state["took"].as_f64().unwrap_or(0.0),
        path.display()
    );
    for worker in workers {
        if let Some(problem) = worker["problem"].as_str() {
            let (slot, pid) = (&worker["slot"], &worker["pid"]);
            let _ = writeln!(text, "worker {slot} ({pid}) {}", shown(problem));
        }
    }
    if samples == 0 {
        text += "R has computed nothing.\n";
        return text;
    }
    let share = |seconds: &Value| {
        let seconds = seconds.as_f64().unwrap_or(0.0);
        format!("{seconds:>8.2} s {:>5.1} %", 100.0 * seconds / all)
    };
    text += "\nby route, output or observer\n";
    for route in summary["routes"].as_array().into_iter().flatten().take(MOST_FUNCTIONS) {
        let name = route["route"].as_str().unwrap_or("(outside of handlers and observers)");
        let _ = writeln!(text, "{}  {}", share(&route["seconds"]), shown(name));
    }
    for (title, list, key) in [
        ("by function, without the functions that it calls", "by_self", "self"),
        ("by function, with the functions that it calls", "by_total", "total"),
    ] {
        let _ = writeln!(text, "\n{title}");
        for function in summary[list].as_array().into_iter().flatten().take(MOST_FUNCTIONS) {
            let name = function["name"].as_str().unwrap_or_default();
            let _ = writeln!(text, "{}  {}", share(&function[key]), shown(name));
        }
    }
    let _ = writeln!(
        text,
        "\nOpen the file in R: profvis::profvis(prof_input = \"{0}\"), or summaryRprof(\"{0}\").",
        path.display()
    );
    text
}

/// Returns text of the server without characters that could change the state of a terminal.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_summary_names_routes_functions_and_problems() {
        let function = json!({ "name": "predict\u{1b}", "self": 1.5, "total": 2.0 });
        let state = json!({
            "interval_ms": 10, "took": 10.0,
            "workers": [{ "slot": 1, "pid": 7, "problem": "ended during the profile" },
                        { "slot": 0, "pid": 6, "problem": null }],
            "summary": {
                "samples": 200, "seconds": 2.0,
                "routes": [{ "route": "GET:/a", "seconds": 1.5 },
                           { "route": null, "seconds": 0.5 }],
                "by_self": [function], "by_total": [function],
            },
        });
        let text = summary(&state, Path::new("p.out"));
        for part in [
            "200 samples of R (10 ms of processor time each) in 10.0 s are in p.out\n",
            "worker 1 (7) ended during the profile\n",
            "    1.50 s  75.0 %  GET:/a\n    0.50 s  25.0 %  (outside of handlers and observers)\n",
            "    1.50 s  75.0 %  predict\u{fffd}\n",
            "    2.00 s 100.0 %  predict\u{fffd}\n",
            "summaryRprof(\"p.out\")",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("worker 0"));
        let nothing = json!({ "summary": { "samples": 0 } });
        assert!(summary(&nothing, Path::new("p.out")).ends_with("R has computed nothing.\n"));
    }
}
