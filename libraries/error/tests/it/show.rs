//! `Display`, `Debug`, chains and backtraces.

use rookery_error::{Chain, Error, error};

use crate::Failure;

fn three() -> Error {
    Error::new(Failure("reset\nby peer", Some(Box::new(Failure("cable cut", None)))))
        .context("reading the head")
}

fn fails() -> rookery_error::Result<()> {
    Err(three())
}

#[test]
fn display_is_one_level() {
    assert_eq!(three().to_string(), "reading the head");
    assert_eq!(format!("[{:>8}]", error!("short")), "[   short]");
}

#[test]
fn alternate_display_is_the_chain() {
    assert_eq!(format!("{:#}", three()), "reading the head: reset\nby peer: cable cut");
    assert_eq!(
        format!("{:#}", three().with_backtrace()),
        "reading the head: reset\nby peer: cable cut"
    );
    assert_eq!(format!("{:#}", error!("alone")), "alone");
}

#[test]
fn debug_is_for_panics() {
    let shown = "reading the head\n\nCaused by:\n    0: reset\n       by peer\n    1: cable cut";
    assert_eq!(format!("{:?}", three()), shown);
    assert_eq!(format!("{:?}", error!("alone")), "alone");

    let panic = std::panic::catch_unwind(|| fails().unwrap()).expect_err("it panics");
    let message = panic.downcast_ref::<String>().expect("a formatted message");
    assert!(message.ends_with(shown), "{message}");
}

#[test]
fn alternate_debug_is_the_structure() {
    let shown = format!("{:#?}", Error::new(Failure("f", None)));
    assert_eq!(shown, format!("{:#?}", Failure("f", None)));
    let layered = format!("{:#?}", three());
    assert!(layered.contains("Context {") && layered.contains("cable cut"), "{layered}");
    assert_eq!(format!("{:#?}", error!("alone")), "\"alone\"");
}

#[test]
fn a_chain_has_every_level() {
    let error = three().with_backtrace();
    let levels: Vec<_> = error.chain().map(ToString::to_string).collect();
    assert_eq!(levels, ["reading the head", "reset\nby peer", "cable cut"]);
    assert_eq!(Chain::new(&Failure("one", None)).count(), 1);
}

#[test]
fn backtrace_only_on_request() {
    // The environment requests a backtrace, as it may on this machine, but the code does not.
    assert!(three().backtrace().is_none());
    assert!(Error::from("text").backtrace().is_none());
}

/// Miri resolves the frames of the test's own binary too slowly.
#[test]
#[cfg_attr(miri, ignore)]
fn backtrace_is_found_through_layers() {
    let error = error!("traced").with_backtrace().context("outer");
    let backtrace = error.backtrace().expect("asked for");
    assert_eq!(backtrace.status(), std::backtrace::BacktraceStatus::Captured);
    let shown = format!("{error:?}");
    assert!(
        shown.contains("Backtrace:") && shown.contains("backtrace_is_found_through_layers"),
        "{shown}"
    );
}
