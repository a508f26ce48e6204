//! R's package yaml, for tests that compare it with the parser of this crate.

use std::process::Command;

/// Runs an R script that gets each document in a file, and returns the script's output. Returns
/// `None` if R is not installed, or if the script exits with status 77 because the package yaml is
/// not installed.
pub(crate) fn run_r<'a>(
    script: &str,
    documents: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("Rscript");
    command.args(["--vanilla", "-e", script]);
    for (at, document) in documents.into_iter().enumerate() {
        let file = folder.path().join(format!("{at}.yml"));
        std::fs::write(&file, document).unwrap();
        command.arg(file);
    }
    let output = command.output().ok()?;
    if output.status.code() == Some(77) {
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}
