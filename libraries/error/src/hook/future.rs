//! Wrappers for futures and streams, which keep the error hook that was current when they were
//! made.

#![allow(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{ErrorHook, current_hook, stack};

macro_rules! hooked {
    ($(#[$doc:meta])* $name:ident, $what:ident) => {
        $(#[$doc])*
        #[must_use]
        pub struct $name<$what> {
            hook: Option<Arc<dyn ErrorHook>>,
            /// The wrapped future or stream. It is structurally pinned, unlike `hook`. This is
            /// sound because the wrapper has no `Drop` implementation, and the compiler derives its
            /// `Unpin`.
            inner: $what,
        }

        impl<$what> $name<$what> {
            /// Wraps `inner`, and captures the thread's current error hook, if any.
            pub fn new(inner: $what) -> Self {
                Self::with_hook(current_hook(), inner)
            }

            /// Wraps `inner` with the error hook `hook` instead of the current one.
            pub fn with_hook(hook: Option<Arc<dyn ErrorHook>>, inner: $what) -> Self {
                Self { hook, inner }
            }

            /// Returns the captured error hook, if any.
            pub fn hook(&self) -> Option<&Arc<dyn ErrorHook>> {
                self.hook.as_ref()
            }

            #[inline]
            fn project(self: Pin<&mut Self>) -> (Option<&Arc<dyn ErrorHook>>, Pin<&mut $what>) {
                // SAFETY: nothing is moved out of the reference.
                let this = unsafe { self.get_unchecked_mut() };
                // SAFETY: `inner` is pinned whenever `self` is, because it is never moved or
                // returned unpinned.
                (this.hook.as_ref(), unsafe { Pin::new_unchecked(&mut this.inner) })
            }
        }

        impl<$what: fmt::Debug> fmt::Debug for $name<$what> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("hooked", &self.hook.is_some())
                    .field("inner", &self.inner)
                    .finish()
            }
        }
    };
}

hooked! {
    /// A future that captures an error hook (a receiver of errors), and makes it the thread's
    /// current hook during each of its polls, on any thread.
    ///
    /// If no hook was current when the future was wrapped, none is current during its polls. After
    /// each poll, even if it panics, the thread's previous hook is current again. A poll changes no
    /// reference count and allocates nothing.
    ///
    /// # Cancel safety
    /// The wrapper is cancel-safe if the inner future is. While the inner future is dropped, the
    /// hook of the dropping code is current.
    ErrorHookFuture, F
}

impl<F: Future> Future for ErrorHookFuture<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let (hook, inner) = self.project();
        stack::lend(hook, || inner.poll(cx))
    }
}

#[cfg(feature = "stream")]
hooked! {
    /// A stream that captures the thread's current error hook (the receiver of its errors) when it
    /// is made, and makes this hook current during each of its polls, on any thread.
    ErrorHookStream, S
}

#[cfg(feature = "stream")]
impl<S: futures_core::Stream> futures_core::Stream for ErrorHookStream<S> {
    type Item = S::Item;

    #[inline]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let (hook, inner) = self.project();
        stack::lend(hook, || inner.poll_next(cx))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}
