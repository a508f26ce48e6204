//! Layers around an error, which add a context or a backtrace to it.

use std::any::Any;
use std::backtrace::Backtrace;
use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::{mem, ptr};

use crate::Error;
use crate::content::{Content, Object};
use crate::repr::Repr;

/// An extension of `Result` and `Option`. It adds context to the error of a `Result`, and converts
/// a `None` into an error.
///
/// ```
/// use rookery_error::{Context, Result};
///
/// fn port(text: &str) -> Result<u16> {
///     text.parse::<u16>().with_context(|| format!("reading the port from {text:?}"))
/// }
/// assert_eq!(port("http").unwrap_err().to_string(), "reading the port from \"http\"");
/// ```
pub trait Context<T>: Sized {
    /// Adds a context to the error, as [`Error::context`] does.
    ///
    /// # Errors
    /// The original error with `context` around it, or for `None` an error whose message is
    /// `context`.
    fn context<C: Display + Send + Sync + 'static>(self, context: C) -> Result<T, Error> {
        self.with_context(|| context)
    }

    /// Adds a context to the error. The context is only made if there is an error.
    ///
    /// # Errors
    /// The original error with `context()` around it, or for `None` an error whose message is
    /// `context()`.
    fn with_context<C: Display + Send + Sync + 'static>(
        self,
        context: impl FnOnce() -> C,
    ) -> Result<T, Error>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn with_context<C: Display + Send + Sync + 'static>(
        self,
        context: impl FnOnce() -> C,
    ) -> Result<T, Error> {
        self.map_err(|error| error.into().context(context()))
    }
}

/// Makes an error out of a `None`. The context is the message of the error.
impl<T> Context<T> for Option<T> {
    fn with_context<C: Display + Send + Sync + 'static>(
        self,
        context: impl FnOnce() -> C,
    ) -> Result<T, Error> {
        self.ok_or_else(|| Error::from_repr(Repr::new(Layer { context: context(), inner: None })))
    }
}

/// A layer that adds a context to an error. `inner` is that error, or `None` if the context is the
/// whole error.
pub(crate) struct Layer<C> {
    context: C,
    inner: Option<Error>,
}

impl<C> Layer<C> {
    pub(crate) fn new(context: C, inner: Error) -> Layer<C> {
        Layer { context, inner: Some(inner) }
    }

    pub(crate) fn into_context(self) -> C {
        self.context
    }
}

impl<C: Display> Display for Layer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.context.fmt(f)
    }
}

/// Prints this context, a list of the contexts inside it, and the innermost error. The output is
/// flat, because nested structures would overflow the stack for an error with many layers.
impl<C: Display> fmt::Debug for Layer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut layer = f.debug_struct("Context");
        layer.field("context", &format_args!("{}", self.context));
        if let Some(inner) = &self.inner {
            let innermost = inner.layers().last().unwrap_or(inner);
            if inner.layers().any(|error| error.is_context() && !ptr::eq(error, innermost)) {
                layer.field("within", &Contexts { outermost: inner, innermost });
            }
            layer.field("source", &innermost.object());
        }
        layer.finish()
    }
}

/// The contexts that were added to the error `innermost`, from `outermost` inwards.
struct Contexts<'a> {
    outermost: &'a Error,
    innermost: &'a Error,
}

impl fmt::Debug for Contexts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.outermost.layers().take_while(|error| !ptr::eq(*error, self.innermost));
        let contexts = layers.filter(|error| error.is_context());
        f.debug_list().entries(contexts.map(|error| DisplayAsDebug(error.object()))).finish()
    }
}

struct DisplayAsDebug<'a>(&'a Object);

impl fmt::Debug for DisplayAsDebug<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self.0, f)
    }
}

impl<C: Display> StdError for Layer<C> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.as_ref().map(|error| error.object() as &(dyn StdError + 'static))
    }
}

impl<C: Display + Send + Sync + 'static> Content for Layer<C> {
    fn object(&self) -> &Object {
        self
    }

    fn wrapped(&self) -> Option<&Error> {
        self.inner.as_ref()
    }

    fn take_wrapped(&mut self) -> Option<Error> {
        self.inner.take()
    }

    fn context(&self) -> Option<&dyn Any> {
        Some(&self.context)
    }

    fn into_boxed(self) -> Box<Object> {
        Box::new(self)
    }
}

/// A layer that adds a backtrace to an error. The error's message, source and type stay the same.
pub(crate) struct Traced {
    backtrace: Backtrace,
    /// The error to which the backtrace belongs. It is never a `Traced` itself, so that
    /// [`object`](Content::object) never recurses through many layers.
    error: Error,
}

impl Traced {
    pub(crate) fn new(backtrace: Backtrace, error: Error) -> Traced {
        Traced { backtrace, error }
    }
}

impl Content for Traced {
    fn object(&self) -> &Object {
        self.error.object()
    }

    fn wrapped(&self) -> Option<&Error> {
        Some(&self.error)
    }

    fn take_wrapped(&mut self) -> Option<Error> {
        Some(mem::replace(&mut self.error, Error::from_static(&"moved out")))
    }

    fn backtrace(&self) -> Option<&Backtrace> {
        Some(&self.backtrace)
    }

    fn into_boxed(self) -> Box<Object> {
        self.error.into_boxed()
    }
}
