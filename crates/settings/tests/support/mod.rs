//! R's package yaml, for tests that compare it with the reader of this crate.

use std::process::Command;

/// Runs an R script over documents, each in a file that is an argument of the script, and returns what
/// the script writes. Returns `None` if R is not installed, or the script ends with status 77, which
/// says that the package yaml is not.
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
