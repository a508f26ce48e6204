//! Who is told about an error, and for how long.

mod future;
mod stack;

use std::fmt;
use std::sync::Arc;

use crate::Error;

pub use future::ErrorHookFuture;
#[cfg(feature = "stream")]
pub use future::ErrorHookStream;
pub use stack::HookGuard;

/// Is told about errors.
///
/// A hook may do everything from inside its methods: put other hooks in force, throw to them, even throw to itself
/// (it stays in force meanwhile, so it is the hook's own business to come to an end). A hook that wants to pass
/// errors on takes [`current_hook`] when it is made.
pub trait ErrorHook: Send + Sync {
    /// Takes an error, and says by which name it can be taken back.
    fn throw(&self, error: Error) -> ErrorId;

    /// Takes an error back, as when a user has corrected the input that was wrong.
    fn clear(&self, id: &ErrorId);
}

/// Names an error to the hook that took it. The default, 0, is what [`throw`] returns without a hook.
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

/// Hands `error` to the hook in force on this thread. Without one it is dropped, unconverted.
///
/// # Allocation
/// That of the conversion (none for an [`Error`]), and the hook's.
pub fn throw(error: impl Into<Error>) -> ErrorId {
    stack::visit(|hook| hook.map(|hook| hook.throw(error.into()))).unwrap_or_default()
}

/// Tells the hook in force on this thread that the error no longer holds.
pub fn clear(id: &ErrorId) {
    stack::visit(|hook| {
        if let Some(hook) = hook {
            hook.clear(id);
        }
    });
}

/// The hook in force on this thread.
///
/// ```
/// assert!(rookery_error::current_hook().is_none());
/// ```
pub fn current_hook() -> Option<Arc<dyn ErrorHook>> {
    stack::visit(|hook| hook.map(Arc::clone))
}

/// Runs `run` with `hook` in force. The hook before is back afterwards, also after a panic, and also when guards made
/// by `run` are still alive.
///
/// # Stackful coroutines
/// The hook is the thread's and does not follow one: `run` must not switch to another stack and come back later, or on
/// another thread. Async code has no such switches; [`ErrorHookFuture`] puts its hook in force for each poll.
///
/// # Allocation
/// None, and no reference count is touched: the hook is lent.
pub fn with_hook<R>(hook: &Arc<dyn ErrorHook>, run: impl FnOnce() -> R) -> R {
    stack::lend(Some(hook), run)
}

/// As [`with_hook`]; with `None` no hook is in force.
pub fn with_hook_option<R>(hook: Option<&Arc<dyn ErrorHook>>, run: impl FnOnce() -> R) -> R {
    stack::lend(hook, run)
}

/// Puts `hook` in force until the guard is dropped.
///
/// Prefer [`with_hook`], which costs nothing, and [`ErrorHookFuture`] in async code: a guard that is held across an
/// `.await` is in force for whatever runs on this thread until then.
///
/// # Allocation
/// One.
pub fn set_hook(hook: Arc<dyn ErrorHook>) -> HookGuard {
    HookGuard::new(hook)
}
