//! Error hooks, and the scopes in which they are current.

mod future;
mod stack;

use std::fmt;
use std::sync::Arc;

use crate::Error;

pub use future::ErrorHookFuture;
#[cfg(feature = "stream")]
pub use future::ErrorHookStream;
pub use stack::HookGuard;

/// A receiver of errors.
///
/// A hook may do anything in its methods: make other hooks current, throw to them, and even throw
/// to itself. The hook stays current meanwhile, so the hook itself has to avoid endless recursion.
/// A hook that passes errors on calls [`current_hook`] when it is made.
pub trait ErrorHook: Send + Sync {
    /// Receives an error, and returns the id with which it can be withdrawn.
    fn throw(&self, error: Error) -> ErrorId;

    /// Withdraws an error, for instance when a user has corrected the input.
    fn clear(&self, id: &ErrorId);
}

/// The id of an error in its hook. The default, 0, is what [`throw`] returns without a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ErrorId(usize);

impl From<usize> for ErrorId {
    fn from(number: usize) -> ErrorId {
        ErrorId(number)
    }
}

impl From<ErrorId> for usize {
    fn from(id: ErrorId) -> usize {
        id.0
    }
}

impl fmt::Display for ErrorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Passes `error` to the current hook of this thread. Without a hook, drops it unconverted.
///
/// # Allocation
/// The allocations of the conversion (none for an [`Error`]) and of the hook.
pub fn throw(error: impl Into<Error>) -> ErrorId {
    stack::visit(|hook| hook.map(|hook| hook.throw(error.into()))).unwrap_or_default()
}

/// Notifies the current hook of this thread that the error no longer applies.
pub fn clear(id: &ErrorId) {
    stack::visit(|hook| {
        if let Some(hook) = hook {
            hook.clear(id);
        }
    });
}

/// Returns the current hook of this thread.
///
/// ```
/// assert!(rookery_error::current_hook().is_none());
/// ```
pub fn current_hook() -> Option<Arc<dyn ErrorHook>> {
    stack::visit(|hook| hook.map(Arc::clone))
}

/// Calls `run` with `hook` as the current hook. The previous hook is restored afterwards, also
/// after a panic, and also if guards made by `run` still exist.
///
/// # Stackful coroutines
/// The hook belongs to the thread and does not follow a stackful coroutine: `run` must not switch
/// to another stack and return later, or on another thread. Async code has no such switches;
/// [`ErrorHookFuture`] sets its hook for each poll.
///
/// # Allocation
/// No allocation, and no reference count changes, because the hook is lent.
pub fn with_hook<R>(hook: &Arc<dyn ErrorHook>, run: impl FnOnce() -> R) -> R {
    stack::lend(Some(hook), run)
}

/// Calls `run` with `hook` as the current hook, as [`with_hook`] does. With `None` there is no
/// current hook.
pub fn with_hook_option<R>(hook: Option<&Arc<dyn ErrorHook>>, run: impl FnOnce() -> R) -> R {
    stack::lend(hook, run)
}

/// Makes `hook` current until the guard is dropped.
///
/// Prefer [`with_hook`], which costs nothing, and [`ErrorHookFuture`] in async code. A guard that
/// is held across an `.await` applies to everything that runs on this thread until then.
///
/// # Allocation
/// One allocation.
pub fn set_hook(hook: Arc<dyn ErrorHook>) -> HookGuard {
    HookGuard::new(hook)
}
