//! `_server.yml`, and what has precedence over it, with a shell script in R's place.

use std::process::Command;

use tempfile::TempDir;

use crate::hand_over::Installed;
use crate::support::{executable, folder};

/// Replaces `R` by a script that tells what it was given, and ends.
fn telling(installed: &Installed) {
    let script = "#!/bin/bash\necho \"R: ${ROOKERY_WORKER_COUNT-alone} $(echo \
                  $ROOKERY_INTERNAL_SETTINGS)\" >&2\nexit 7\n";
    executable(&installed.r(), script);
}

/// Makes an app with these options in its `_server.yml`.
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
    let (status, _, said) = installed.run(&mut command);
    (status, said)
}

#[test]
fn a_file_has_several_workers_serve_unless_the_command_line_says_otherwise() {
    let installed = Installed::new();
    telling(&installed);
    let app = app("  workers: 3\n  drain: 5s\n  error_detail: full\n  start_retries: 0\n");
    let run = |words: &[&str]| {
        serve(&installed, &app, &[&["--port=0", "--log=none"], words].concat(), &[])
    };
    let (status, said) = run(&[]);
    assert_eq!(status, Some(3), "{said}");
    assert!(
        said.contains("R: 3 target=") && said.contains("file:text:error_detail=full"),
        "{said}"
    );
    let (_, said) = run(&["--workers", "2", "--error-detail", "message"]);
    assert!(said.contains("R: 2 ") && said.contains(" cli:text:error_detail=message"), "{said}");
    let (status, said) = run(&["--workers", "1"]);
    assert!(status == Some(3) && said.contains("R: 1 "), "{said}");
}

#[test]
fn a_file_has_one_r_process_serve_unless_the_command_line_says_otherwise() {
    let installed = Installed::new();
    telling(&installed);
    let app =
        app("  host: 127.0.0.2\n  port: 0\n  log: none\n  log_format: json\n  tls:\n    cert: \
         /c.pem\n    hsts: 60\n  limits:\n    max_body_size: 5\n  reconnect: always\n");
    let (status, said) = serve(&installed, &app, &["--tls", "dev", "--restart", "never"], &[]);
    assert_eq!(status, Some(7), "{said}");
    for field in [
        "R: 1 target=",
        "host=127.0.0.2 port=0 ",
        " tls:text:tls_cert=",
        "log=nothing log_format=json",
        "file:text:reconnect=always",
        "file:number:max_body_size=5",
    ] {
        assert!(said.contains(field), "{field}: {said}");
    }
    // Certificates of the command line replace all that the file says of HTTPS.
    assert!(!said.contains("tls:number:hsts"), "{said}");
    let words =
        ["--tls=dev", "--host=127.0.0.1", "--log=-", "--log-format=common", "--restart=never"];
    let (_, said) = serve(&installed, &app, &words, &[]);
    assert!(
        said.contains("host=127.0.0.1 ") && said.contains("log=stdout log_format=common"),
        "{said}"
    );
}

#[test]
fn the_environment_has_precedence_over_the_file_and_says_so() {
    let installed = Installed::new();
    telling(&installed);
    let app = app("  port: 0\n  log: none\n  error_detail: full\n  limits: {max_headers: 7}\n");
    let variables = [
        ("ROOKERY_ERROR_DETAIL", "message"),
        ("ROOKERY_HEADER_LINES", "9"),
        ("ROOKERY_LOG_FORMAT", "json"),
        ("ROOKERY_PORT", ""),
        ("PORT", "1"),
    ];
    let (status, said) = serve(&installed, &app, &["--restart=never"], &variables);
    assert_eq!(status, Some(7), "{said}");
    for told in [
        "environment:text:error_detail=message",
        "environment:number:max_headers=9",
        "log_format=json",
        " port=0 ",
        "`ROOKERY_ERROR_DETAIL` in the environment overrides `error_detail:` in ",
        "the environment variable ROOKERY_HEADER_LINES is deprecated: use ROOKERY_MAX_HEADERS",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let (_, said) = serve(
        &installed,
        &app,
        &["--error-detail=none", "--limit=max_headers=8", "--restart=never"],
        &variables,
    );
    assert!(
        said.contains(" cli:text:error_detail=none") && said.contains(" cli:number:max_headers=8"),
        "{said}"
    );
    let (status, said) = serve(&installed, &app, &[], &[("ROOKERY_DRAIN", "soon")]);
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("The environment variable ROOKERY_DRAIN must be a time such as"),
        "{said}"
    );
}

#[test]
fn variables_of_the_program_are_not_those_of_r() {
    let installed = Installed::new();
    executable(&installed.r(), "#!/bin/bash\nenv | grep ^ROOKERY_ >&2\nexit 7\n");
    let app = folder(&[("app.R", "1")]);
    let variables = [("ROOKERY_PORT", "0"), ("ROOKERY_LOG", "none"), ("ROOKERY_IDLE_TIMEOUT", "5")];
    for words in [&[][..], &["--workers=2", "--start-retries=0"]] {
        let (_, said) = serve(&installed, &app, words, &variables);
        assert!(said.contains("ROOKERY_IDLE_TIMEOUT=5"), "{said}");
        assert!(!said.contains("ROOKERY_PORT=") && !said.contains("ROOKERY_LOG="), "{said}");
    }
}

#[test]
fn a_mistake_in_a_file_is_told_with_its_position_before_r_is_started() {
    let installed = Installed::new();
    telling(&installed);
    for (options, says) in [
        (
            "  workers: 3\n  max_age: old\n",
            "_server.yml`, line 5, column 12: `max_age:` must be a time such as 500ms, 30s or 2h",
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
        let (status, said) = serve(&installed, &app(options), &[], &[]);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(says) && !said.contains("R: "), "{says}: {said}");
    }
}

#[test]
fn a_port_beside_the_socket_of_a_file_is_told_to_have_no_effect() {
    let installed = Installed::new();
    telling(&installed);
    let app = app("  host: unix:s\n  log: none\n");
    let (status, said) = serve(&installed, &app, &["--port", "8000", "--restart", "never"], &[]);
    assert_eq!(status, Some(7), "{said}");
    assert!(said.contains("`--port` has no effect"), "{said}");
}

#[test]
fn a_variable_that_is_not_text_is_a_mistake() {
    use std::os::unix::ffi::OsStrExt as _;
    let installed = Installed::new();
    telling(&installed);
    let mut command = Command::new(installed.program());
    let value = std::ffi::OsStr::from_bytes(b"3\xff");
    let app = app("");
    command.args(["serve", "."]).current_dir(app.path()).env("ROOKERY_WORKERS", value);
    let (status, _, said) = installed.run(&mut command);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("ROOKERY_WORKERS is not valid UTF-8"), "{said}");
}
