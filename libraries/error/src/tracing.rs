//! An error hook that writes errors as events of the crate `tracing`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Error, ErrorHook, ErrorId};

/// An error hook (a receiver of errors) that writes an event at level `ERROR` for each error and
/// its sources. It then passes the error on to another hook, if there is one.
///
/// ```
/// use std::sync::Arc;
/// use rookery_error::{ErrorHook, TracingHook, current_hook, throw, with_hook};
///
/// let hook: Arc<dyn ErrorHook> = Arc::new(TracingHook::new(current_hook()));
/// with_hook(&hook, || throw("disk full"));
/// ```
pub struct TracingHook {
    next: Option<Arc<dyn ErrorHook>>,
    last_id: AtomicUsize,
}

impl TracingHook {
    /// Makes an error hook that passes errors on to the hook `next` and returns the ids that `next`
    /// gives them. If `next` is `None`, this hook numbers the errors itself.
    pub fn new(next: Option<Arc<dyn ErrorHook>>) -> TracingHook {
        TracingHook { next, last_id: AtomicUsize::new(0) }
    }
}

impl ErrorHook for TracingHook {
    fn throw(&self, error: Error) -> ErrorId {
        tracing::error!(error = %format_args!("{error:#}"), "error thrown");
        match &self.next {
            Some(next) => next.throw(error),
            None => ErrorId::from(1 + self.last_id.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn clear(&self, id: &ErrorId) {
        tracing::debug!(%id, "error cleared");
        if let Some(next) = &self.next {
            next.clear(id);
        }
    }
}

impl fmt::Debug for TracingHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracingHook").field("next", &self.next.is_some()).finish_non_exhaustive()
    }
}
