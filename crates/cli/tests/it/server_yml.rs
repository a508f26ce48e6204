//! Tests of `_server.yml` and of the sources with higher precedence, with a shell script in place
//! of R.

use std::process::Command;

use tempfile::TempDir;

use crate::r_processes::Installed;
use crate::support::{executable, folder};

/// Replaces `R` by a script that prints its settings and exits.
fn print_settings(installed: &Installed) {
    let script = "#!/bin/bash\necho \"R: ${ROOKERY_WORKER_COUNT-alone} $(echo \
                  $ROOKERY_INTERNAL_SETTINGS)\" >&2\nexit 7\n";
    executable(&installed.r(), script);
}

/// Creates an app with these options in its `_server.yml`.
fn app(options: &str) -> TempDir {
    let text = format!("engine: rookery\napp: app.R\noptions:\n{options}");
    folder(&[("_server.yml", text.as_str()), ("app.R", "1")])
}

fn serve(
    installed: &Installed,
    app: &TempDir,
    words: &[&str],
    variables: &[(&str, &str)],
) -> (Option<i32>, String) {
    let mut command = Command::new(installed.program());
    command
        .args(["serve", "."])
        .args(words)
        .current_dir(app.path())
        .envs(variables.iter().copied());
    let (status, _, printed) = installed.run(&mut command);
    (status, printed)
}

#[test]
fn the_file_sets_several_workers_unless_the_command_line_does() {
    let installed = Installed::new();
    print_settings(&installed);
    let app = app("  workers: 3\n  drain: 5s\n  error_detail: full\n  start_retries: 0\n");
    let run = |words: &[&str]| {
        serve(&installed, &app, &[&["--port=0", "--log=none"], words].concat(), &[])
    };
    let (status, printed) = run(&[]);
    assert_eq!(status, Some(3), "{printed}");
    assert!(
        printed.contains("R: 3 target=") && printed.contains("file:text:error_detail=full"),
        "{printed}"
    );
    let (_, printed) = run(&["--workers", "2", "--error-detail", "message"]);
    assert!(
        printed.contains("R: 2 ") && printed.contains(" cli:text:error_detail=message"),
        "{printed}"
    );
    let (status, printed) = run(&["--workers", "1"]);
    assert!(status == Some(3) && printed.contains("R: 1 "), "{printed}");
}

#[test]
fn the_file_sets_one_worker_unless_the_command_line_does() {
    let installed = Installed::new();
    print_settings(&installed);
    let app =
        app("  host: 127.0.0.2\n  port: 0\n  log: none\n  log_format: json\n  tls:\n    cert: \
         /c.pem\n    hsts: 60\n  limits:\n    max_body_size: 5\n  reconnect: always\n");
    let (status, printed) = serve(&installed, &app, &["--tls", "dev", "--restart", "never"], &[]);
    assert_eq!(status, Some(7), "{printed}");
    for field in [
        "R: 1 target=",
        "host=127.0.0.2 port=0 ",
        "log=nothing log_format=json",
        "file:text:reconnect=always",
    ] {
        assert!(printed.contains(field), "{field}: {printed}");
    }
    let words =
        ["--tls=dev", "--host=127.0.0.1", "--log=-", "--log-format=common", "--restart=never"];
    let (_, printed) = serve(&installed, &app, &words, &[]);
    assert!(
        printed.contains("host=127.0.0.1 ") && printed.contains("log=nothing log_format=common"),
        "{printed}"
    );
}

#[test]
fn the_environment_overrides_the_file() {
    let installed = Installed::new();
    print_settings(&installed);
    let app = app("  port: 0\n  log: none\n  error_detail: full\n  limits: {max_connections: 7}\n");
    let variables = [
        ("ROOKERY_ERROR_DETAIL", "message"),
        ("ROOKERY_MAX_CONNECTIONS", "9"),
        ("ROOKERY_LOG_FORMAT", "json"),
        ("ROOKERY_PORT", ""),
        ("PORT", "1"),
    ];
    let (status, printed) = serve(&installed, &app, &["--restart=never"], &variables);
    assert_eq!(status, Some(7), "{printed}");
    for expected in [
        "environment:text:error_detail=message",
        "environment:number:max_connections=9",
        "log_format=json",
        " port=0 ",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    let (_, printed) = serve(
        &installed,
        &app,
        &["--error-detail=none", "--max-connections=8", "--restart=never"],
        &variables,
    );
    assert!(
        printed.contains(" cli:text:error_detail=none")
            && printed.contains(" cli:number:max_connections=8"),
        "{printed}"
    );
    let (status, printed) = serve(&installed, &app, &[], &[("ROOKERY_DRAIN", "soon")]);
    assert_eq!(status, Some(1), "{printed}");
    assert!(
        printed.contains("The environment variable ROOKERY_DRAIN must be a time such as"),
        "{printed}"
    );
}

#[test]
fn workers_do_not_inherit_the_programs_variables() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\nenv | grep ^ROOKERY_ >&2\nexit 7\n");
    let app = folder(&[("app.R", "1")]);
    let variables = [("ROOKERY_PORT", "0"), ("ROOKERY_LOG", "none"), ("ROOKERY_IDLE_TIMEOUT", "5")];
    for words in [&[][..], &["--workers=2", "--start-retries=0"]] {
        let (_, printed) = serve(&installed, &app, words, &variables);
        assert!(printed.contains("ROOKERY_IDLE_TIMEOUT=5"), "{printed}");
        assert!(
            !printed.contains("ROOKERY_PORT=") && !printed.contains("ROOKERY_LOG="),
            "{printed}"
        );
    }
}

#[test]
fn reports_mistakes_in_the_file_before_starting_r() {
    let installed = Installed::new();
    print_settings(&installed);
    for (options, says) in [
        (
            "  workers: 3\n  max_age: old\n",
            "_server.yml`, line 5, column 12: `max_age:` must be a time such as 500ms, 30s, 5m or 2h",
        ),
        (
            "  prot: 1\n",
            "_server.yml`, line 4, column 3: `prot:` is not a setting under `options:`. Did you \
             mean `port:`?",
        ),
        (
            "  tls: {hsts: 60}\n",
            "_server.yml`, line 4: `tls.hsts:` needs `tls.cert:` or `tls.acme.domain:`.",
        ),
    ] {
        let (status, printed) = serve(&installed, &app(options), &[], &[]);
        assert_eq!(status, Some(1), "{printed}");
        assert!(printed.contains(says) && !printed.contains("R: "), "{says}: {printed}");
    }
}

#[test]
fn reports_that_port_has_no_effect_with_a_unix_socket() {
    let installed = Installed::new();
    print_settings(&installed);
    let app = app("  host: unix:s\n  log: none\n");
    let (status, printed) = serve(&installed, &app, &["--port", "8000", "--restart", "never"], &[]);
    assert_eq!(status, Some(7), "{printed}");
    assert!(printed.contains("`--port` has no effect"), "{printed}");
}

#[test]
fn rejects_variables_that_are_not_utf8() {
    use std::os::unix::ffi::OsStrExt as _;
    let installed = Installed::new();
    print_settings(&installed);
    let mut command = Command::new(installed.program());
    let value = std::ffi::OsStr::from_bytes(b"3\xff");
    let app = app("");
    command.args(["serve", "."]).current_dir(app.path()).env("ROOKERY_WORKERS", value);
    let (status, _, printed) = installed.run(&mut command);
    assert_eq!(status, Some(1), "{printed}");
    assert!(printed.contains("ROOKERY_WORKERS is not valid UTF-8"), "{printed}");
}
