//! What the program hands over to R, with a shell script in R's place.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::authority::free_port;
use crate::support::{Running, executable, folder, hears_all};

/// A package folder with the program in it, and a folder with an `R` that says how it was called.
pub(crate) struct Installed {
    root: tempfile::TempDir,
}

impl Installed {
    pub(crate) fn new() -> Installed {
        let root = folder(&[
            ("lib of r/rookery/serve/cli.R", ""),
            ("lib of r/rookery/compat/httpuv/DESCRIPTION", ""),
            ("lib of r/rookery/exec/none", ""),
            ("bin/none", ""),
        ]);
        let installed = Installed { root };
        fs::copy(env!("CARGO_BIN_EXE_rookery"), installed.program()).unwrap();
        executable(
            &installed.root.path().join("bin/R"),
            // As R's own: dash would let blocked signals in.
            "#!/bin/bash\nprintf '%s\\n' \"$$\" \"$PWD\" \"$R_LIBS\" \"$R_TESTS\" \"$*\" \"$ROOKERY_CLI\"\n\
             grep -E 'Sig(Blk|Ign)' /proc/self/status\nexit 7\n",
        );
        installed
    }

    fn package(&self) -> PathBuf {
        self.root.path().join("lib of r/rookery")
    }

    /// Where its `R` is.
    pub(crate) fn r(&self) -> PathBuf {
        self.root.path().join("bin/R")
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.package().join("exec/rookery")
    }

    /// Has its `R` be the one that is found.
    pub(crate) fn on_path<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        hears_all(command);
        let path = format!("{}:/usr/bin:/bin", self.root.path().join("bin").display());
        command.env("PATH", path).env_remove("R_LIBS")
    }

    pub(crate) fn run(&self, command: &mut Command) -> (Option<i32>, String, String) {
        let mut it = Running::start(self.on_path(command));
        let (status, out) = it.end();
        (status.code(), out, std::mem::take(&mut it.said))
    }
}

#[test]
fn it_becomes_the_r_that_serves() {
    let installed = Installed::new();
    let app = folder(&[("my app/app.R", "1")]);
    // As install_cli() does.
    let link = installed.root.path().join("bin/rookery");
    std::os::unix::fs::symlink(installed.program(), &link).unwrap();
    let mut command = Command::new(&link);
    command.args(["serve", "my app/app.R", "--port", "0", "--log", "access.log"]).current_dir(app.path());
    let (status, out, said) = installed.run(command.env("R_TESTS", "startup.Rs"));
    assert_eq!((status, said.as_str()), (Some(7), ""), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    let root = fs::canonicalize(app.path()).unwrap();
    assert_eq!(Path::new(lines[1]), root.join("my app"));
    let package = fs::canonicalize(installed.package()).unwrap();
    assert_eq!(Path::new(lines[2]), package.join("compat"));
    assert_eq!(lines[3], "");
    assert_eq!(
        lines[4],
        format!("--no-echo --no-restore --no-save --file={}/serve/cli.R", package.display())
    );
    let handed_over = [
        format!("target={}/my app/app.R", root.display()),
        "host=127.0.0.1".to_owned(),
        "port=0".to_owned(),
        "log=file".to_owned(),
        format!("log_file={}/access.log", app.path().display()),
        "log_format=common".to_owned(),
    ];
    assert_eq!(lines[5..11], handed_over);
    // Of SIGINT, which is the second bit.
    let blocked = |out: &str| {
        let mask = out
            .lines()
            .find_map(|line| line.strip_prefix("SigBlk:"))
            .expect("there is one")
            .trim()
            .to_owned();
        u64::from_str_radix(&mask, 16).expect("a number") & 2 != 0
    };
    assert!(!blocked(&out), "{out}");

    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "trap '' INT; exec \"$0\" serve \"$1\" --log none --host unix:s --admin unix:look"])
        .arg(&link);
    let (_, out, _) = installed.run(shell.arg(app.path().join("my app")).current_dir(app.path()));
    assert!(out.contains("\ninterrupt=ignored\n") && out.contains("\nlog=nothing\n"), "{out}");
    assert!(out.contains(&format!("\nsocket={}/s\n", app.path().display())), "{out}");
    assert!(out.contains(&format!("\nadmin=unix:{}/look\n", app.path().display())), "{out}");
    assert!(blocked(&out), "{out}");
}

#[test]
fn names_that_are_no_text_arrive_as_they_are() {
    let installed = Installed::new();
    let app = folder(&[]);
    let odd = app.path().join(OsStr::from_bytes(b"100%\n\xE9.R"));
    fs::write(&odd, "1").unwrap();
    let path = format!("{}:/usr/bin:/bin", installed.root.path().join("bin").display());
    let output = Command::new(installed.program())
        .arg("serve")
        .arg(&odd)
        .args(["--port", "0"])
        .env("PATH", path)
        .output();
    let out = output.unwrap().stdout;
    let wanted = b"/100%25%0A\xE9.R\n";
    assert!(out.windows(wanted.len()).any(|window| window == wanted), "{}", String::from_utf8_lossy(&out));
}

#[test]
fn settings_are_handed_over() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1"), ("spool/none", "")]);
    let mut command = Command::new(installed.program());
    command.current_dir(app.path()).args([
        "serve",
        ".",
        "--port",
        "0",
        "--log=none",
        "--proxy-protocol",
        "--spool-dir",
        "spool",
    ]);
    command.args([
        "--trusted-proxies",
        "10.0.0.0/8,unix",
        "--ws-origins",
        "same",
        "--ws-compression",
        "level=6",
    ]);
    command.args(["--max-body-size", "10 MB", "--limit=idle_timeout=5", "--error-detail", "full"]);
    let (status, out, said) = installed.run(command.env("ROOKERY_REQUEST_ID_HEADER", "off"));
    assert_eq!((status, said.as_str()), (Some(7), ""), "{out}");
    let wanted = format!(
        "\ntrusted_proxies=10.0.0.0/8\ntrusted_proxies=unix\nproxy_protocol=TRUE\nlimit=body_bytes=10000000\n\
         limit=idle_time=5\nws_origins=same\nws_compression=6 512 FALSE\nspool_dir={}/spool\n\
         environment:request_id_header=FALSE\nerror_detail=full\n",
        app.path().display()
    );
    assert!(out.contains(&wanted), "{out}");
}

#[test]
fn how_tls_is_to_be_spoken_is_handed_over() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/tls");
    let mut command = Command::new(installed.program());
    command.current_dir(app.path()).args(["serve", ".", "--port", "0", "--log=none"]);
    command.arg("--tls-cert").arg(tls.join("localhost.pem")).arg("--tls-key").arg(tls.join("localhost.key"));
    let free = free_port();
    command.args([
        "--no-http2-websockets",
        "--hsts=31536000,subdomains",
        "--redirect-from",
        &free.to_string(),
    ]);
    let (status, out, said) = installed.run(&mut command);
    assert_eq!((status, said.lines().count()), (Some(7), 1), "{out}{said}");
    assert!(said.contains("`--no-http2-websockets` is deprecated"), "{said}");
    let wanted = format!(
        "\ntls_min_version=1.2\ntls_http2_websockets=FALSE\ntls_hsts=31536000 TRUE FALSE\ntls_redirect_from={free}\n"
    );
    assert!(out.contains(&wanted), "{out}");
}

#[test]
fn what_an_authority_is_asked_for_is_handed_over() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    let ca = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/tls/ca.pem");
    let mut command = Command::new(installed.program());
    command.current_dir(app.path()).args(["serve", ".", "--host=127.0.0.1", "--port=0", "--log=none"]);
    command.args([
        "--domain=App.example.org",
        "--domain=b.example.org",
        "--agree-tos",
        "--email=me@example.org",
    ]);
    command.args(["--acme-directory=https://ca.example/dir", "--acme-profile=shortlived", "--acme-dir=kept"]);
    command.arg("--acme-challenge=tls-alpn-01").arg("--acme-ca").arg(&ca);
    let (status, out, said) = installed.run(&mut command);
    assert_eq!((status, said.matches(" is deprecated, because ").count()), (Some(7), 5), "{out}{said}");
    let wanted = format!(
        "\ntls_min_version=1.2\nacme_domain=App.example.org\nacme_domain=b.example.org\nacme_email=me@example.org\nacme_agree_tos=TRUE\n\
         acme_directory=https://ca.example/dir\nacme_profile=shortlived\nacme_challenge=tls-alpn-01\nacme_ca={}\nacme_dir={}/kept\n",
        ca.display(),
        app.path().display()
    );
    assert!(out.contains(&wanted), "{out}");
}

#[test]
fn the_r_of_an_app_is_not_run() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    executable(&app.path().join("R"), "#!/bin/sh\necho hijacked\n");
    for path in ["", ".", "::", "/nowhere:"] {
        let mut command = Command::new(installed.program());
        // The folder in which it is given is another one.
        command
            .arg("serve")
            .arg(app.path())
            .args(["--port", "0"])
            .env("PATH", path)
            .current_dir(installed.root.path());
        let mut it = Running::start(&mut command);
        let (status, out) = it.end();
        assert_eq!((status.code(), out.as_str()), (Some(1), ""), "{path:?}: {}", it.said);
        assert!(it.said.starts_with("rookery: R was not found"), "{}", it.said);
    }
    // A folder of that name, and a file that nobody may run, are none.
    let odd = folder(&[("first/R/none", ""), ("second/R", "")]);
    let path = ["first", "second"].map(|name| odd.path().join(name).display().to_string()).join(":");
    let path = format!("{path}:{}:/usr/bin:/bin", installed.root.path().join("bin").display());
    let mut it = Running::start(
        Command::new(installed.program())
            .arg("serve")
            .arg(app.path())
            .args(["--port", "0"])
            .env("PATH", path),
    );
    assert_eq!(it.end().0.code(), Some(7), "{}", it.said);
}

#[test]
fn what_is_missing_is_named() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    fs::remove_file(installed.root.path().join("bin/R")).unwrap();
    let mut it = Running::start(
        Command::new(installed.program())
            .arg("serve")
            .arg(app.path())
            .args(["--port", "0"])
            .env("PATH", "/nowhere"),
    );
    assert_eq!(it.end().0.code(), Some(1));
    assert!(it.said.starts_with("rookery: R was not found: install it"), "{}", it.said);
    // A program that lies alone.
    let alone = installed.root.path().join("bin/rookery");
    fs::copy(env!("CARGO_BIN_EXE_rookery"), &alone).unwrap();
    let (status, _, said) =
        installed.run(Command::new(&alone).arg("serve").arg(app.path()).args(["--port", "0"]));
    assert_eq!(status, Some(1));
    assert!(said.contains("it works where the R package rookery has been installed"), "{said}");
}
