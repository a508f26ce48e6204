//! Tests of how R processes are started, with a shell script in place of R.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Running, executable, folder, restore_signals};

/// Makes a hard link to the program, or a copy where that is not possible. A copy that is being
/// written cannot be started while a child process of another test has inherited its descriptor.
fn install_program(path: &Path) {
    let program = env!("CARGO_BIN_EXE_rookery");
    // A copy over an earlier link would overwrite the program itself.
    let _ = fs::remove_file(path);
    fs::hard_link(program, path).or_else(|_| fs::copy(program, path).map(drop)).unwrap();
}

/// A package folder that contains the program, and a folder with an `R` that prints how it was
/// started.
pub(crate) struct Installed {
    root: tempfile::TempDir,
}

impl Installed {
    pub(crate) fn new() -> Installed {
        let root = folder(&[
            ("lib of r/rookery/serve/cli.R", ""),
            ("lib of r/rookery/exec/none", ""),
            ("bin/none", ""),
        ]);
        let installed = Installed { root };
        install_program(&installed.program());
        executable(
            &installed.root.path().join("bin/R"),
            // bash, like R, keeps blocked signals blocked; dash does not.
            "#!/bin/bash\nprintf '%s\\n' \"$$\" \"$PWD\" \"$R_LIBS\" \"$R_TESTS\" \"$*\" \
             \"$ROOKERY_INTERNAL_SETTINGS\"\ngrep -E 'Sig(Blk|Ign)' /proc/self/status\nexit 7\n",
        );
        installed
    }

    fn package(&self) -> PathBuf {
        self.root.path().join("lib of r/rookery")
    }

    /// Returns the path of the installation's `R`.
    pub(crate) fn r(&self) -> PathBuf {
        self.root.path().join("bin/R")
    }

    /// Copies the program to a folder outside the package, and returns its path.
    fn alone(&self) -> PathBuf {
        let program = self.root.path().join("bin/rookery");
        install_program(&program);
        program
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.package().join("exec/rookery")
    }

    /// Makes the installation's `R` the first one on PATH.
    pub(crate) fn on_path<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        restore_signals(command);
        let path = format!("{}:/usr/bin:/bin", self.root.path().join("bin").display());
        command.env("PATH", path).env_remove("R_LIBS")
    }

    pub(crate) fn run(&self, command: &mut Command) -> (Option<i32>, String, String) {
        let mut it = Running::start(self.on_path(command));
        let (status, out) = it.end();
        (status.code(), out, std::mem::take(&mut it.stderr))
    }
}

#[test]
fn workers_run_in_the_folder_of_the_app() {
    let installed = Installed::new();
    let app = folder(&[("my app/app.R", "1")]);
    // Like `install_cli()`.
    let link = installed.root.path().join("bin/rookery");
    std::os::unix::fs::symlink(installed.program(), &link).unwrap();
    let mut command = Command::new(&link);
    command.args([
        "serve",
        "my app/app.R",
        "--port",
        "0",
        "--log",
        "access.log",
        "--restart",
        "never",
    ]);
    let (status, out, printed) =
        installed.run(command.current_dir(app.path()).env("R_TESTS", "startup.Rs"));
    assert_eq!(status, Some(7), "{printed}");
    assert!(printed.contains("has failed: it ended with status 7"), "{printed}");
    // With a single worker, the output contains the worker's lines unchanged.
    let lines: Vec<&str> = out.lines().collect();
    let root = fs::canonicalize(app.path()).unwrap();
    assert_eq!(Path::new(lines[1]), root.join("my app"), "{out}");
    let package = fs::canonicalize(installed.package()).unwrap();
    assert_eq!(lines[2], "", "the libraries are those of any R process: {out}");
    assert_eq!(lines[3], "");
    assert_eq!(
        lines[4],
        format!("--no-echo --no-restore --no-save --file={}/serve/cli.R", package.display())
    );
    assert_eq!(lines[5], format!("target={}/my app/app.R", root.display()));
    // The program writes the access log.
    assert!(out.contains("\nlog=nothing\n"), "{out}");
    assert!(out.contains("SigBlk:\t0000000000000000\n"), "{out}");
}

#[test]
fn file_names_that_are_not_utf8_reach_r_unchanged() {
    let installed = Installed::new();
    let app = folder(&[]);
    let odd = app.path().join(OsStr::from_bytes(b"100%\n\xE9.R"));
    fs::write(&odd, "1").unwrap();
    let path = format!("{}:/usr/bin:/bin", installed.root.path().join("bin").display());
    let output = Command::new(installed.program())
        .arg("serve")
        .arg(&odd)
        .args(["--port", "0", "--restart", "never"])
        .env("PATH", path)
        .output();
    let out = output.unwrap().stdout;
    let wanted = b"/100%25%0A\xE9.R\n";
    assert!(
        out.windows(wanted.len()).any(|window| window == wanted),
        "{}",
        String::from_utf8_lossy(&out)
    );
}

#[test]
fn a_program_r_in_the_apps_folder_is_not_run() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    executable(&app.path().join("R"), "#!/bin/sh\necho hijacked\n");
    for path in ["", ".", "::", "/nowhere:"] {
        let mut command = Command::new(installed.program());
        // The command is started in another folder.
        command
            .arg("serve")
            .arg(app.path())
            .args(["--port", "0"])
            .env("PATH", path)
            .current_dir(installed.root.path());
        let mut it = Running::start(&mut command);
        let (status, out) = it.end();
        assert_eq!((status.code(), out.as_str()), (Some(1), ""), "{path:?}: {}", it.stderr);
        assert!(it.stderr.starts_with("rookery: R was not found"), "{}", it.stderr);
    }
    // A folder with the name `R`, and a file that is not executable, do not count.
    let odd = folder(&[("first/R/none", ""), ("second/R", "")]);
    let path =
        ["first", "second"].map(|name| odd.path().join(name).display().to_string()).join(":");
    let path = format!("{path}:{}:/usr/bin:/bin", installed.root.path().join("bin").display());
    let mut it = Running::start(
        Command::new(installed.program())
            .arg("serve")
            .arg(app.path())
            .args(["--port", "0", "--restart", "never"])
            .env("PATH", path),
    );
    assert_eq!(it.end().0.code(), Some(7), "{}", it.stderr);
}

#[test]
fn reports_missing_r_and_missing_package() {
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
    assert!(it.stderr.starts_with("rookery: R was not found: install it"), "{}", it.stderr);
    executable(&installed.r(), "#!/bin/sh\nprintf '\\nrookery-package:NA\\n'\n");
    let (status, _, printed) = installed
        .run(Command::new(installed.alone()).arg("serve").arg(app.path()).args(["--port", "0"]));
    assert_eq!(status, Some(1));
    assert!(printed.contains("is not part of an installed R package rookery"), "{printed}");
    assert!(printed.contains("and R does not find that package"), "{printed}");
}

#[test]
fn a_program_outside_a_package_asks_r_for_it_and_compares_the_versions() {
    let installed = Installed::new();
    let app = folder(&[("app.R", "1")]);
    let package = installed.package();
    // The answer follows the output of `.Rprofile`, and a process that `.Rprofile` has started
    // keeps the pipe open.
    executable(
        &installed.r(),
        &format!(
            "#!/bin/bash\necho started as \"$*\" in \"$PWD\" >> '{0}/starts'\n\
             case \"$*\" in *find.package*) sleep 60 & printf 'hello\\n\\nrookery-package:{1}\\n' \
             ;; *) exit 7 ;; esac\n",
            installed.root.path().display(),
            package.display()
        ),
    );
    let current = env!("CARGO_PKG_VERSION");
    for (version, remedy) in [
        (current, ""),
        ("0.0.1", "Update the R package with install.packages"),
        ("999.0", "Update this program, or use the program of the package"),
    ] {
        fs::write(package.join("DESCRIPTION"), format!("Version: {version}\n")).unwrap();
        let mut command = Command::new(installed.alone());
        command.args(["serve", "app.R", "--port", "0", "--restart", "never"]);
        let (status, _, printed) = installed.run(command.current_dir(app.path()));
        assert_eq!(status, Some(7), "{printed}");
        let is_reported = printed.contains(&format!("is rookery {version}. They are tested"));
        assert_eq!(is_reported, !remedy.is_empty(), "{version}: {printed}");
        assert!(printed.contains(remedy), "{version}: {printed}");
    }
    // Each time, R is queried once, in the folder of the app, and then starts the package's worker.
    let starts = fs::read_to_string(installed.root.path().join("starts")).unwrap();
    let starts: Vec<&str> = starts.lines().collect();
    assert_eq!(starts.len(), 6, "{starts:?}");
    let folder = fs::canonicalize(app.path()).unwrap();
    for pair in starts.chunks(2) {
        assert!(pair[0].contains("find.package"), "{starts:?}");
        assert!(pair[0].ends_with(&format!(" in {}", folder.display())), "{starts:?}");
        assert!(pair[1].contains(&format!("--file={}/serve/cli.R", package.display())));
    }
}
