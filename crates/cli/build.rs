//! Sets the facts about the build that `rookery --version --verbose` prints.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=ROOKERY_BUILD_COMMIT");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    println!("cargo:rustc-env=ROOKERY_BUILD_TARGET={}", variable("TARGET"));
    println!("cargo:rustc-env=ROOKERY_BUILD_PROFILE={}", variable("PROFILE"));
    let compiler = output(Command::new(variable("RUSTC")).arg("--version"));
    println!("cargo:rustc-env=ROOKERY_BUILD_RUSTC={}", compiler.unwrap_or_default());
    let commit = std::env::var("ROOKERY_BUILD_COMMIT").ok().or_else(commit).unwrap_or_default();
    println!("cargo:rustc-env=ROOKERY_BUILD_COMMIT={commit}");
}

/// Returns the commit if this file is part of a repository. A released source is not, but may be in
/// a folder of another repository.
fn commit() -> Option<String> {
    output(git().args(["ls-files", "--error-unmatch", "build.rs"]))?;
    let log = output(git().args(["rev-parse", "--git-path", "logs/HEAD"]))?;
    if Path::new(&log).is_file() {
        println!("cargo:rerun-if-changed={log}");
    }
    output(git().args(["rev-parse", "--short=12", "HEAD"]))
}

fn git() -> Command {
    Command::new("git")
}

/// Returns the output of a command that succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
