//! The names that `error!`, `bail!` and `ensure!` use of their caller, and those that they do not.

use rookery_error::{Error, Result, bail, ensure, error};

/// Items that a macro defines are visible in the arguments of its caller. None of the names that a
/// macro might use may shadow these.
#[test]
fn names_in_a_message_are_the_callers() {
    const MESSAGE: &str = "disk full";
    static TEXT: &str = "of the caller";
    fn fails() -> Result<()> {
        const MESSAGE: &str = "from bail";
        bail!("{MESSAGE}")
    }
    let message = "a local";
    assert_eq!(error!("{MESSAGE}").to_string(), "disk full");
    assert_eq!(
        error!("{MESSAGE}: {TEXT}, {message}").to_string(),
        "disk full: of the caller, a local"
    );
    assert_eq!(error!("{}", MESSAGE).to_string(), "disk full");
    assert_eq!(fails().expect_err("it fails").to_string(), "from bail");
}

#[test]
fn the_macros_need_no_name_in_scope() {
    mod bare {
        #![allow(dead_code)]
        struct Error;
        struct Result;
        struct Ok;
        struct Err;
        pub(super) fn message() -> rookery_error::Error {
            rookery_error::error!("plain")
        }
        pub(super) fn fails(number: u8) -> rookery_error::Result<u8> {
            rookery_error::bail!("{number} is odd");
        }
    }
    assert_eq!(bare::message().to_string(), "plain");
    assert_eq!(bare::fails(3).expect_err("it fails").to_string(), "3 is odd");
}

#[test]
fn every_form_of_literal_is_shown_as_format_would() {
    assert_eq!(error!("").to_string(), "");
    assert_eq!(error!(r#"raw "text""#).to_string(), "raw \"text\"");
    assert_eq!(error!(r"raw {{braces}}").to_string(), "raw {braces}");
    assert_eq!(error!("\u{7b}\u{7b}escaped\u{7d}\u{7d}").to_string(), "{escaped}");
    assert_eq!(error!("tab\tand \u{e9}").to_string(), "tab\tand \u{e9}");
}

#[test]
fn a_condition_that_is_false_is_shown_as_it_is_written() {
    struct Numbers {
        count: u8,
    }
    fn check(count: u8, text: &str) -> Result<u8> {
        ensure!(Numbers { count }.count < 3);
        ensure!(!text.is_empty() || count == 0, "no text for {count}");
        ensure!(text != "{}", "plain");
        Ok(count)
    }
    let message = |count, text| check(count, text).expect_err("a false condition").to_string();
    assert_eq!(message(3, ""), "condition is false: `Numbers { count }.count < 3`");
    assert_eq!(message(2, ""), "no text for 2");
    assert_eq!(message(2, "{}"), "plain");
    assert_eq!(check(0, "").expect("true conditions"), 0);
}

/// Uses `?` in a function that returns what `main` often returns.
#[test]
fn an_error_converts_to_a_box_without_send() {
    fn fails() -> Result<(), Box<dyn std::error::Error>> {
        Err(error!("in a {}", "box"))?
    }
    assert_eq!(fails().expect_err("it fails").to_string(), "in a box");
    let boxed = Box::<dyn std::error::Error>::from(Error::new(std::fmt::Error));
    assert!(boxed.is::<std::fmt::Error>());
}
