//! A wrapper for futures, which keeps the error hook that was current when it was made.

#![allow(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{ErrorHook, current_hook, stack};

/// A future that captures an error hook (a receiver of errors), and makes it the thread's current
/// hook during each of its polls, on any thread.
///
/// If no hook was current when the future was wrapped, none is current during its polls. After each
/// poll, even if it panics, the thread's previous hook is current again. A poll changes no
/// reference count and allocates nothing.
///
/// # Cancel safety
/// The wrapper is cancel-safe if the inner future is. While the inner future is dropped, the hook
/// of the dropping code is current.
#[must_use]
pub struct ErrorHookFuture<F> {
    hook: Option<Arc<dyn ErrorHook>>,
    /// The wrapped future. It is structurally pinned, unlike `hook`. This is sound because the
    /// wrapper has no `Drop` implementation, and the compiler derives its `Unpin`.
    inner: F,
}

impl<F> ErrorHookFuture<F> {
    /// Wraps `inner`, and captures the thread's current error hook, if any.
    pub fn new(inner: F) -> Self {
        Self::with_hook(current_hook(), inner)
    }

    /// Wraps `inner` with the error hook `hook` instead of the current one.
    pub fn with_hook(hook: Option<Arc<dyn ErrorHook>>, inner: F) -> Self {
        Self { hook, inner }
    }

    /// Returns the captured error hook, if any.
    pub fn hook(&self) -> Option<&Arc<dyn ErrorHook>> {
        self.hook.as_ref()
    }

    #[inline]
    fn project(self: Pin<&mut Self>) -> (Option<&Arc<dyn ErrorHook>>, Pin<&mut F>) {
        // SAFETY: nothing is moved out of the reference.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: `inner` is pinned whenever `self` is, because it is never moved or returned
        // unpinned.
        (this.hook.as_ref(), unsafe { Pin::new_unchecked(&mut this.inner) })
    }
}

impl<F: fmt::Debug> fmt::Debug for ErrorHookFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrorHookFuture")
            .field("hooked", &self.hook.is_some())
            .field("inner", &self.inner)
            .finish()
    }
}

impl<F: Future> Future for ErrorHookFuture<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let (hook, inner) = self.project();
        stack::lend(hook, || inner.poll(cx))
    }
}
