//! Throwing errors to hooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rookery_error::{Delivery, ErrorHook as _, Kind, Reports, StaticError};

use crate::errors::ThirtyTwo;
use rookery_bench_meter::{Case, case, repeat};

/// A hook that counts, for the trait of each crate.
#[derive(Default)]
pub struct Ours(AtomicUsize);

impl rookery_error::ErrorHook for Ours {
    fn throw(&self, _: rookery_error::Error) -> rookery_error::ErrorId {
        self.0.fetch_add(1, Ordering::Relaxed).into()
    }

    fn clear(&self, _: &rookery_error::ErrorId) {}
}

#[derive(Default)]
pub struct Throw(AtomicUsize);

impl throw_error::ErrorHook for Throw {
    fn throw(&self, _: throw_error::Error) -> throw_error::ErrorId {
        self.0.fetch_add(1, Ordering::Relaxed).into()
    }

    fn clear(&self, _: &throw_error::ErrorId) {}
}

#[derive(Clone, Copy)]
enum Counted {
    Rejection,
    Handler,
}

impl Kind for Counted {
    const COUNT: usize = 2;

    fn of(error: &rookery_error::Error) -> Counted {
        if error.is::<ThirtyTwo>() { Counted::Rejection } else { Counted::Handler }
    }

    fn index(self) -> usize {
        self as usize
    }
}

static REJECTION: StaticError<ThirtyTwo> = StaticError::new(ThirtyTwo::CONST);

pub fn cases() -> Vec<Case> {
    vec![
        case("throw", "ours", |n| {
            let hook: Arc<dyn rookery_error::ErrorHook> = Arc::new(Ours::default());
            rookery_error::with_hook(&hook, || {
                repeat(n, || rookery_error::throw(rookery_error::Error::from_static(&"too large")))
            })
        }),
        case("throw", "ours-guard", |n| {
            let _guard = rookery_error::set_hook(Arc::new(Ours::default()));
            repeat(n, || rookery_error::throw(rookery_error::Error::from_static(&"too large")))
        }),
        case("throw", "throw_error", |n| {
            let _guard = throw_error::set_error_hook(Arc::new(Throw::default()));
            repeat(n, || throw_error::throw("too large"))
        }),
        case("reject", "ours", |n| {
            let reports = Arc::new(Reports::<Counted>::new());
            reports.set_delivery(Delivery::Queue);
            let hook = reports.hook();
            let mut request = 0;
            repeat(n, || {
                request += 1;
                hook.begin(request);
                hook.throw(rookery_error::Error::from_static_error(&REJECTION));
                reports.take()
            })
        }),
        case("reject", "ours-counted", |n| {
            let reports = Arc::new(Reports::<Counted>::new());
            let hook = reports.hook();
            let mut request = 0;
            repeat(n, || {
                request += 1;
                hook.begin(request);
                hook.throw(rookery_error::Error::from_static_error(&REJECTION))
            })
        }),
    ]
}
