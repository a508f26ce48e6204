//! Tests of a log of JSON objects, with a shell script in place of R.

use std::process::Command;

use serde_json::Value;

use crate::r_processes::Installed;
use crate::support::{Running, executable, folder};

/// A program in place of R that prints lines of several kinds and fails.
const FAILS: &str = "#!/bin/bash\nprintf 'a \\033[31m\\xff \\\"\\n\\nno end'\n\
                     printf 'Error in f() : \\n  no database\\nWarning: x\\n' >&2\nexit 1\n";

#[test]
fn all_that_workers_and_the_supervisor_print_is_json() {
    let app = folder(&[("app.R", "1")]);
    let installed = Installed::new();
    executable(&installed.r(), FAILS);
    for workers in ["1", "2"] {
        let mut command = Command::new(installed.program());
        command
            .args(["serve", ".", "--port", "0", "--log-format", "json", "--start-retries", "0"])
            .args(["--workers", workers])
            .current_dir(app.path());
        let mut it = Running::start(installed.on_path(&mut command));
        let (status, out) = it.end();
        assert_eq!(status.code(), Some(3), "{}", it.stderr);
        let lines = |text: &str| -> Vec<Value> {
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
        };
        let find = |lines: &[Value], message: &str| {
            let found = lines.iter().find(|line| line["message"] == message);
            found.unwrap_or_else(|| panic!("{message}: {lines:?}")).clone()
        };
        let (out, err) = (lines(&out), lines(&it.stderr));
        let first = find(&out, "a \u{1b}[31m\u{fffd} \"");
        assert_eq!((&first["level"], &first["stream"]), (&"info".into(), &"stdout".into()));
        assert!(first["worker"].is_u64() && first["pid"].is_u64(), "{first}");
        find(&out, "no end");
        assert_eq!(find(&err, "Error in f() :")["level"], "error");
        assert_eq!(find(&err, "  no database")["level"], "error");
        assert_eq!(find(&err, "Warning: x")["level"], "warning");
        let own: Vec<&Value> = err.iter().filter(|line| line["worker"].is_null()).collect();
        assert!(own.iter().any(|line| line["level"] == "warning"), "{own:?}");
        assert_eq!(own.last().unwrap()["level"], "error");
    }
}
