//! Error hooks, which are objects that receive the errors passed to [`throw`]. The functions here
//! install a hook for the duration of a call or until a guard is dropped.

mod future;
mod stack;

use std::fmt;
use std::sync::Arc;

use crate::Error;

pub use future::ErrorHookFuture;
pub use stack::HookGuard;

/// An error hook: a receiver of the errors that code passes to [`throw`].
///
/// A hook stays current while its methods are called. If a method throws errors itself, it
/// therefore has to avoid endless recursion, for example by making another hook current.
///
/// To pass errors on to the previous hook, a hook must store the result of [`current_hook`] before
/// it becomes current itself.
pub trait ErrorHook: Send + Sync {
    /// Receives an error, and returns an id by which the error can be withdrawn with
    /// [`clear`](ErrorHook::clear).
    fn throw(&self, error: Error) -> ErrorId;

    /// Withdraws an error that this hook has received, for instance when a user has corrected the
    /// input.
    fn clear(&self, id: &ErrorId);
}

/// The id that an error hook gave to an error. [`throw`] returns the default id, 0, if there is no
/// hook.
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

/// Passes `error` to the current error hook (the receiver of errors) of this thread, and returns
/// the id that the hook gives to the error. If there is no hook, drops the error and returns the id
/// 0.
///
/// # Allocation
/// The conversion to [`Error`] and the hook may allocate. An error that is already an [`Error`]
/// needs no conversion, and without a hook the error is not converted.
pub fn throw(error: impl Into<Error>) -> ErrorId {
    stack::visit(|hook| hook.map(|hook| hook.throw(error.into()))).unwrap_or_default()
}

/// Tells the current error hook of this thread that the error with this id no longer applies.
pub fn clear(id: &ErrorId) {
    stack::visit(|hook| {
        if let Some(hook) = hook {
            hook.clear(id);
        }
    });
}

/// Returns the current error hook of this thread, if any.
///
/// ```
/// assert!(rookery_error::current_hook().is_none());
/// ```
pub fn current_hook() -> Option<Arc<dyn ErrorHook>> {
    stack::visit(|hook| hook.map(Arc::clone))
}

/// Calls `run` while `hook` is the thread's current error hook (the receiver of its errors).
/// Afterwards the previous hook is current again, even after a panic, and even if a guard that
/// [`set_hook`] returned to `run` still exists.
///
/// # Stackful coroutines
/// `run` must not suspend a stackful coroutine and resume it later or on another thread, because
/// the hook belongs to the thread and does not follow the coroutine. Async code is not affected,
/// because [`ErrorHookFuture`] makes its hook current for each poll.
///
/// # Allocation
/// None. No reference count changes, because the hook is lent to the thread.
pub fn with_hook<R>(hook: &Arc<dyn ErrorHook>, run: impl FnOnce() -> R) -> R {
    stack::lend(Some(hook), run)
}

/// Calls `run` while `hook` is the thread's current error hook (the receiver of its errors), and
/// then restores the previous hook. If `hook` is `None`, the thread has no current hook during the
/// call.
pub fn with_hook_option<R>(hook: Option<&Arc<dyn ErrorHook>>, run: impl FnOnce() -> R) -> R {
    stack::lend(hook, run)
}

/// Makes `hook` the thread's current error hook until the returned guard is dropped.
///
/// Prefer [`with_hook`], which allocates nothing, or [`ErrorHookFuture`] in async code. While a
/// guard is held across an `.await`, its hook applies to everything that runs on this thread.
///
/// # Allocation
/// One allocation.
pub fn set_hook(hook: Arc<dyn ErrorHook>) -> HookGuard {
    HookGuard::new(hook)
}
