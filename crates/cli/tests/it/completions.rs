//! Tests of the completion script for bash, in bash.

use std::process::Command;

use crate::support::{folder, rookery};

/// Returns what bash offers for these words, of which the last one is being typed.
fn offered(words: &[&str]) -> Vec<String> {
    let output = rookery().args(["completions", "bash"]).output().unwrap();
    let script = String::from_utf8(output.stdout).unwrap();
    let body = format!(
        "{script}\nCOMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
         _rookery_offered rookery \"${{@: -1}}\" \"${{@: -2:1}}\"\nprintf '%s\\n' \
         \"${{COMPREPLY[@]}}\""
    );
    let output = Command::new("bash")
        .args(["--norc", "-eu", "-c", &body, "bash", "rookery"])
        .args(words)
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn commands_come_first_and_then_files() {
    assert!(offered(&[""]).contains(&"serve".to_owned()));
    assert_eq!(offered(&["ser"]), ["serve"]);
    assert_eq!(offered(&["new", ""]), ["shiny", "api", "chat", "site"]);
    assert_eq!(offered(&["completions", "b"]), ["bash"]);
    // Without an offer of the script, bash completes files and folders.
    for words in [
        &["serve", ""][..],
        &["serve", "a"],
        &["dev", "--port", "80", ""],
        &["serve", "app", ""],
        &["status", ""],
        &["serve", "--tls-cert", "=", "c"],
    ] {
        assert_eq!(offered(words), [""; 0], "{words:?}");
    }
}

#[test]
fn bash_completes_folders_for_the_path() {
    let folder = folder(&[("shiny-app/app.R", "1")]);
    let output = rookery().args(["completions", "bash"]).output().unwrap();
    std::fs::write(folder.path().join("script"), output.stdout).unwrap();
    // `compgen` without a function shows what the fallback of the script's registration offers.
    let body = "source ./script; complete -p rookery; compgen -o bashdefault -o default shi";
    let output = Command::new("bash")
        .args(["--norc", "-c", body])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "complete -o bashdefault -o default -F _rookery_offered rookery\nshiny-app\n");
}

#[test]
fn options_follow_a_hyphen_with_the_most_common_ones_first() {
    let common = offered(&["serve", "--"]);
    assert!((15..=35).contains(&common.len()), "{common:?}");
    assert!(common.contains(&"--port".to_owned()) && !common.contains(&"--surge".to_owned()));
    assert_eq!(offered(&["serve", "app", "--sur"]), ["--surge"]);
    assert_eq!(offered(&["--log-f"]), ["--log-format"]);
    assert_eq!(offered(&["status", "--"]), ["--json", "--watch", "--help"]);
    // Values.
    assert_eq!(offered(&["serve", "--log-format", "j"]), ["json"]);
}
