//! The hook for `tracing`, observed by a subscriber.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use rookery_error::{ErrorHook, ErrorId, TracingHook, clear, error, throw, with_hook};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::Count;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("to a string");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("no panic").push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn errors_become_events_and_are_passed_on() {
    let lines = Lines::default();
    let (count, next) = Count::new();
    let hook: Arc<dyn ErrorHook> = Arc::new(TracingHook::new(Some(next)));
    let last: Arc<dyn ErrorHook> = Arc::new(TracingHook::new(None));
    tracing::subscriber::with_default(lines.clone(), || {
        with_hook(&hook, || {
            let id = throw(error!("disk full").context("saving"));
            clear(&id);
        });
        assert_eq!(with_hook(&last, || throw("alone")), ErrorId::from(1));
    });
    assert_eq!(count.thrown(), 1);
    assert_eq!(count.cleared.load(std::sync::atomic::Ordering::Relaxed), 1);
    let expected = [
        "ERROR message=error thrown error=saving: disk full",
        "DEBUG message=error cleared id=1",
        "ERROR message=error thrown error=alone",
    ];
    assert_eq!(*lines.0.lock().expect("no panic"), expected);
}
