//! Checks the code of an app in an R process, which reads the app as a worker does (`check-app.R`).

use std::process::Stdio;
use std::time::{Duration, Instant};

use rookery_settings::key_value_lines::Lines;

use crate::app_detection::Target;
use crate::failure::Failure;
use crate::listen::address::Address;
use crate::process::owned_child::OwnedChild;
use crate::process::signals::Signals;
use crate::serve::r_command::{app_lines, pass_settings, r_command};
use crate::settings::serve_settings::ServeSettings;

/// The time within which R must have parsed the files of the app. R first runs the user's
/// `.Rprofile`, which may take long.
const MAX_PARSE_TIME: Duration = Duration::from_secs(60);

/// The time within which R, once interrupted, should report where the code of the app was. After
/// that, R is killed.
const REPORT_TIME: Duration = Duration::from_secs(10);

/// The interval at which the program checks whether R has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The exit status of R if it has found mistakes, which it has printed to standard error.
const MISTAKES: i32 = 1;

/// Lets R parse the files that the app reads when it starts, and look for the packages that they
/// need. If `loads` is true, R also runs the code of the app for at most `start_timeout`, but does
/// not serve the app. A signal in `signals` ends R and this process.
///
/// # Errors
/// Fails if R has found a mistake, if R cannot be started, or if the time is over.
pub(crate) fn check_app(
    serve: &ServeSettings,
    target: &Target,
    address: &Address,
    loads: bool,
    signals: &Signals,
) -> Result<(), Failure> {
    let limit = match serve.all.time("start_timeout") {
        Some(limit) if loads => limit,
        _ => MAX_PARSE_TIME,
    };
    let mut lines = app_lines(serve, target, address);
    lines.line("check", b"true");
    if loads {
        lines.line("load", b"true");
    }
    let mut command = r_command(target)?;
    command.stdin(Stdio::null());
    pass_settings(&mut command, lines, Lines::default())?;
    let failed = |what: String| Failure::Unavailable(what);
    let began = Instant::now();
    let mut child = OwnedChild::start(&mut command).map_err(|error| {
        failed(format!(
            "R could not be started ({}): {error}.",
            command.get_program().to_string_lossy()
        ))
    })?;
    let mut is_interrupted = false;
    let status = loop {
        let status = child
            .exit_status()
            .map_err(|error| failed(format!("The end of R cannot be awaited: {error}.")))?;
        if status.is_some() || began.elapsed() > limit + REPORT_TIME {
            break status;
        }
        if began.elapsed() > limit && !is_interrupted {
            child.interrupt();
            is_interrupted = true;
        }
        let signal = signals.recv_timeout(CHECK_INTERVAL);
        if let Some(signal) = signal.filter(|signal| signal.is_stop() || signal.is_reload()) {
            drop(child);
            signal.terminate_process();
        }
    };
    let (path, seconds) = (target.path.display(), limit.as_secs_f64());
    match status {
        Some(status) if status.success() => Ok(()),
        _ if loads && is_interrupted => Err(failed(format!(
            "{path} cannot be served: its code was not loaded within {seconds} s \
             (`--start-timeout`)."
        ))),
        None => Err(failed(format!("R has not parsed the files of {path} within {seconds} s."))),
        Some(status) if status.code() == Some(MISTAKES) => {
            Err(failed(format!("{path} cannot be served: the reason is above.")))
        }
        Some(status) => Err(failed(format!("R has not checked {path}: it ended by {status}."))),
    }
}
