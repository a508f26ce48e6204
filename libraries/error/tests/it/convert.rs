//! Conversions into errors, and from errors.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use rookery_error::{Context, Error, Result, StaticError, bail, error};

use crate::Failure;

#[test]
fn every_kind_of_text() {
    let local = String::from("text of a local");
    let long = "l".repeat(10_000);
    let text: &str = &local;
    assert_eq!(Error::from(text).to_string(), local);
    assert_eq!(Error::from(long.as_str()).to_string(), long);
    assert_eq!(Error::from("").to_string(), "");
    assert_eq!(Error::from(local.clone()).to_string(), local);
    assert_eq!(Error::from(Cow::Borrowed(text)).to_string(), local);
    assert_eq!(Error::from(Cow::<str>::Owned(local.clone())).to_string(), local);
    let boxed: Box<dyn StdError + Send + Sync> = text.into();
    assert_eq!(Error::from(boxed).to_string(), local);
}

/// Checks short texts, which are copied in blocks that overlap.
#[test]
fn text_of_every_length() {
    let letters: String = (0..130).map(|at| char::from(b'!' + at % 90)).collect();
    for length in 0..=letters.len() {
        let text = &letters[..length];
        let error = Error::from(text);
        assert_eq!(error.to_string(), text);
        assert_eq!(error.clone().into_boxed().to_string(), text);
        assert_eq!(error.into_boxed().to_string(), text);
    }
}

#[test]
fn text_is_copied_not_borrowed() {
    let error = {
        let local = String::from("gone soon");
        Error::from(local.as_str())
    };
    assert_eq!(error.to_string(), "gone soon");
    assert_eq!(error.into_boxed().to_string(), "gone soon");
}

#[test]
fn the_question_mark() {
    fn parse(text: &str) -> Result<u16> {
        let number = text.parse::<u16>()?;
        if number == 0 {
            Err("zero")?;
        }
        if number == 1 {
            bail!("one is {}", "odd");
        }
        Ok(number)
    }
    assert_eq!(parse("2").expect("a number"), 2);
    assert!(parse("x").expect_err("no number").is::<std::num::ParseIntError>());
    assert_eq!(parse("0").expect_err("zero").to_string(), "zero");
    assert_eq!(parse("1").expect_err("one").to_string(), "one is odd");
}

#[test]
fn the_macro_formats_only_if_necessary() {
    let name = "x";
    assert_eq!(error!("plain").to_string(), "plain");
    assert_eq!(error!("plain",).to_string(), "plain");
    assert_eq!(error!("{{braces}}").to_string(), "{braces}");
    assert_eq!(error!("inline {name}").to_string(), "inline x");
    assert_eq!(error!("{0} {0:?} {n}", name, n = 3).to_string(), "x \"x\" 3");
    assert_eq!(error!(concat!("con", "cat")).to_string(), "concat");
    for length in [255, 256, 257, 1000] {
        let text = "é".repeat(length / 2) + &"-".repeat(length % 2);
        assert_eq!(text.len(), length);
        assert_eq!(error!("{text}").to_string(), text);
        assert_eq!(error!("<{text}>").to_string(), format!("<{text}>"));
    }
}

#[test]
fn static_errors_are_constants() {
    const MESSAGE: Error = Error::from_static(&"a message");
    static FAILURE: StaticError<Failure> = StaticError::new(Failure("a failure", None));
    const TYPED: Error = Error::from_static_error(&FAILURE);
    assert_eq!(MESSAGE.clone().to_string(), "a message");
    assert_eq!(TYPED.clone().downcast_ref::<Failure>().expect("typed").0, "a failure");
    assert_eq!(FAILURE.error().0, "a failure");
    assert_eq!(TYPED.into_boxed().to_string(), "a failure");
    assert_eq!(MESSAGE.into_boxed().to_string(), "a message");
    let back = Error::from(TYPED.into_boxed());
    assert!(std::ptr::eq(back.downcast_ref::<Failure>().expect("typed"), FAILURE.error()));
}

#[test]
fn a_box_is_kept() {
    let boxed: Box<dyn StdError + Send + Sync> = Box::new(Failure("boxed", None));
    let before = std::ptr::from_ref(boxed.downcast_ref::<Failure>().expect("one"));
    let error = Error::from(boxed);
    assert!(std::ptr::eq(error.downcast_ref::<Failure>().expect("one"), before));
    let boxed = error.into_boxed();
    assert!(std::ptr::eq(boxed.downcast_ref::<Failure>().expect("one"), before));
}

#[test]
fn downcast_looks_through_context_but_not_into_sources() {
    let failure = Failure("outer", Some(Box::new(Failure("inner", None))));
    let error = Error::new(failure).context("context").with_backtrace().context("more");
    assert_eq!(error.downcast_ref::<Failure>().expect("one").0, "outer");
    assert!(!error.is::<io::Error>());

    let wrapped = Error::new(io::Error::other(Failure("cause", None)));
    assert!(wrapped.is::<io::Error>());
    assert!(!wrapped.is::<Failure>());

    let relabelled = Error::new(io::Error::other("x")).context(Failure("context", None));
    assert!(relabelled.is::<io::Error>());
    assert_eq!(relabelled.downcast_ref::<Failure>().expect("the context").0, "context");
    let outermost = relabelled.context(Failure("outermost", None)).context("text");
    assert_eq!(outermost.downcast_ref::<Failure>().expect("the context").0, "outermost");
}

#[test]
fn a_value_is_moved_out_of_an_error_that_is_its_only_owner() {
    let moved = |error: Error| error.downcast::<Failure>().map(|failure| failure.0);
    assert_eq!(moved(Error::new(Failure("concrete", None))).expect("it"), "concrete");
    assert_eq!(moved(Failure("boxed", None).into()).expect("it"), "boxed");
    let layers = Error::new(Failure("within", None)).context("a").with_backtrace().context("b");
    assert_eq!(moved(layers).expect("it"), "within");
    let context = error!("text").context(Failure("context", None)).with_backtrace();
    assert_eq!(moved(context).expect("it"), "context");
    let two = Error::new(Failure("inner", None)).context(Failure("outer", None));
    assert_eq!(moved(two).expect("it"), "outer");
}

#[test]
fn an_error_is_returned_as_it_was_if_the_value_cannot_be_moved() {
    static FAILURE: StaticError<Failure> = StaticError::new(Failure("static", None));
    let kept = |error: Error, shown: &str| {
        let error = error.downcast::<Failure>().map(|_| ()).expect_err("the error");
        assert_eq!(format!("{error:#}"), shown);
        error
    };
    kept(error!("text").context("c"), "c: text");
    kept(Error::new(io::Error::other(Failure("source", None))), "source");
    kept(Error::from_static_error(&FAILURE).context("c"), "c: static");
    kept(Error::from(Arc::new(Failure("arc", None)) as Arc<dyn StdError + Send + Sync>), "arc");

    let inner = Error::new(Failure("shared", None));
    let outer = kept(inner.clone().context("c"), "c: shared");
    let other = outer.clone();
    drop(inner);
    let outer = kept(outer, "c: shared");
    drop(other);
    assert_eq!(outer.downcast::<Failure>().expect("the only owner").0, "shared");
}

#[test]
fn context_on_results_and_options() {
    let result: Result<(), _> = Err(io::Error::other("disk")).context("saving");
    assert_eq!(format!("{:#}", result.expect_err("an error")), "saving: disk");
    let error = None::<u8>.with_context(|| format!("no {}", "byte")).expect_err("none");
    assert_eq!(format!("{error:#}"), "no byte");
    assert!(error.source().is_none());
}

#[test]
fn as_a_std_error() {
    fn shown(error: impl AsRef<dyn StdError>) -> String {
        error.as_ref().to_string()
    }
    let error = Error::new(Failure("by reference", None));
    assert_eq!(shown(error.clone()), "by reference");
    let dereferenced: &(dyn StdError + Send + Sync) = &*error;
    assert!(dereferenced.is::<Failure>());
    assert_eq!(error.clone().into_inner().to_string(), "by reference");
    let shared = error.clone();
    assert_eq!(format!("{:?}", error.into_boxed()), format!("{shared:?}"));
}

#[test]
fn a_shared_layer_is_restored_from_its_box() {
    let error = Error::new(Failure("f", None)).context("c");
    let back = Error::from(error.clone().into_boxed());
    assert!(std::ptr::eq(failure(&back), failure(&error)));
    assert_eq!(format!("{back:#}"), "c: f");
    let traced = Error::from(error!("traced").with_backtrace().into_boxed());
    assert!(traced.backtrace().is_some());
}

#[test]
fn into_inner_keeps_the_type() {
    let object = Error::new(Failure("made here", None)).into_inner();
    assert!(object.is::<Failure>());
    let converted: Error = Failure("by way of a box", None).into();
    let object = converted.into_inner();
    assert_eq!(object.downcast_ref::<Failure>().expect("one").0, "by way of a box");
    assert_eq!(Error::from("text").into_inner().to_string(), "text");

    // The content of a shared error cannot be moved out, but the result recognises its type after
    // the conversion back.
    let shared = Error::new(Failure("shared", None)).context("context");
    let back = Error::from(shared.clone().into_inner());
    assert!(std::ptr::eq(failure(&back), failure(&shared)));
}

fn failure(error: &Error) -> &Failure {
    error.downcast_ref().expect("one")
}

#[test]
fn an_arc_is_kept() {
    fn fails(object: &Arc<dyn StdError + Send + Sync>) -> Result<()> {
        Err(Arc::clone(object))?
    }
    let object: Arc<dyn StdError + Send + Sync> = Arc::new(Failure("in an arc", None));
    let error = Error::from(Arc::clone(&object));
    assert_eq!(Arc::strong_count(&object), 2);
    assert_eq!(error.downcast_ref::<Failure>().expect("one").0, "in an arc");
    assert_eq!(
        (error.to_string(), format!("{error:#?}")),
        ("in an arc".into(), format!("{object:#?}"))
    );
    // The result is the same arc, whether the error is shared or not.
    let kept = error.clone();
    assert!(Arc::ptr_eq(&error.into_inner(), &object));
    assert!(Arc::ptr_eq(&kept.into_inner(), &object));
    assert_eq!(Arc::strong_count(&object), 1);

    let error = fails(&object).expect_err("an error").context("around it");
    assert!(error.is::<Failure>());
    let back = Error::from(Error::from(Arc::clone(&object)).into_boxed());
    assert!(back.is::<Failure>() && Arc::ptr_eq(&back.into_inner(), &object));
}
