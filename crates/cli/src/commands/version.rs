//! The command `rookery --version --verbose`, which prints facts about the program and the system
//! for bug reports. It prints no environment variables, because they may contain secrets.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::serve::{r_command, r_package};

/// Returns the output of `rookery --version --verbose`: facts about the program, R and the system,
/// one per line.
pub(crate) fn describe() -> Vec<u8> {
    let known = |text: &'static str| if text.is_empty() { "unknown" } else { text };
    let program = std::env::current_exe().map(|path| path.display().to_string());
    let mut facts = vec![
        ("commit", known(env!("ROOKERY_BUILD_COMMIT")).to_owned()),
        ("target", known(env!("ROOKERY_BUILD_TARGET")).to_owned()),
        ("compiler", known(env!("ROOKERY_BUILD_RUSTC")).to_owned()),
        ("build", known(env!("ROOKERY_BUILD_PROFILE")).to_owned()),
        ("program", program.unwrap_or_else(|error| format!("unknown: {error}"))),
    ];
    let r = r_command::find_r_program();
    facts.push(("package", describe_package(r.as_deref())));
    match r {
        Some(program) => {
            facts.push(("R", format!("{}, {}", r_version(&program), program.display())));
        }
        None => facts.push(("R", "not found on PATH".to_owned())),
    }
    facts.push(("system", system()));
    let mut text = format!("rookery {}\n", env!("CARGO_PKG_VERSION"));
    for (name, fact) in facts {
        let _ = writeln!(text, "{:<9} {fact}", format!("{name}:"));
    }
    text.into_bytes()
}

/// Returns the version and the folder of the R package rookery, as an R process in the working
/// directory finds it.
fn describe_package(r: Option<&Path>) -> String {
    match r_package::find(r, Path::new(".")) {
        Ok(package) => {
            let version = r_package::version(&package);
            let version = version.as_deref().unwrap_or("an unknown version");
            format!("{version} in {}", package.display())
        }
        Err(_) => "not found".to_owned(),
    }
}

/// Returns the first line of the output of `R --version`. This command does not start an R session.
fn r_version(program: &Path) -> String {
    let output =
        Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map_or_else(|| "an unknown version".to_owned(), |line| line.chars().take(120).collect())
}

/// Returns the name of the operating system, its kernel version and the number of processors.
fn system() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let name = name.map_or(std::env::consts::OS, |name| name.trim_matches('"'));
    let kernel = Command::new("uname").args(["-s", "-r", "-m"]).stdin(Stdio::null()).output();
    let kernel = kernel.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{name}, {}, {}",
        kernel.unwrap_or_else(|_| std::env::consts::ARCH.to_owned()),
        rookery_status::format_count(processors, "processor")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_one_line_per_fact_and_no_environment_variables() {
        let text = String::from_utf8(describe()).unwrap();
        let names: Vec<&str> = text
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(
            names,
            ["commit", "target", "compiler", "build", "program", "package", "R", "system",]
        );
        assert!(text.starts_with(&format!("rookery {}\n", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(text.contains("\ncompiler: rustc 1."), "{text}");
        assert!(text.contains(std::env::consts::ARCH), "{text}");
    }
}
