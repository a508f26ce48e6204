//! The type `Error`, which contains any error in one machine word.

use std::any::Any;
use std::backtrace::Backtrace;
use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;

use crate::chain::{self, Chain};
use crate::content::{Concrete, Object};
use crate::context::{Layer, Traced};
use crate::message;
use crate::repr::{Repr, StaticError};

/// An error of any type, stored in one machine word.
///
/// An `Error` is `Send` and `Sync`. A clone costs one atomic increment, or nothing for a static
/// error. `Option<Error>` and `Result<(), Error>` are one word as well, so `?` through ten frames
/// moves ten words.
///
/// # Cost of construction
/// | from | allocations |
/// |---|---|
/// | [`Error::from_static`], [`Error::from_static_error`], [`error!`](crate::error!) of a plain literal | 0 |
/// | [`Error::new`] of a concrete error | 1 |
/// | `From<&str>`, `From<String>`, `From<Cow<str>>` | 1 |
/// | `From<Box<dyn Error + Send + Sync>>`, `From<Arc<dyn Error + Send + Sync>>`: kept, not copied | 1 |
/// | [`error!`](crate::error!) with arguments | 1 for a message of up to 256 bytes, several for a longer one |
/// | `From` any other error, that is `?` on it | 2 |
///
/// The last line of the table applies to `?` on an error of another crate. This conversion accepts
/// any type, and therefore needs a box. Where errors are frequent, use `.map_err(Error::new)?`,
/// which needs no box.
///
/// # `Error` does not implement `std::error::Error`
/// If it did, the conversion from any error would overlap with `From<T> for T`. Instead, the type
/// dereferences to `dyn std::error::Error`, and [`into_boxed`](Error::into_boxed) returns a
/// `Box<dyn std::error::Error>`.
///
/// # Backtraces
/// Only [`with_backtrace`](Error::with_backtrace) captures a backtrace. `RUST_BACKTRACE` is
/// ignored, because a capture takes microseconds, which a server must not spend on each bad
/// request.
#[derive(Clone)]
#[repr(transparent)]
pub struct Error(Repr);

impl Error {
    /// Makes an error that contains `error`.
    ///
    /// # Allocation
    /// One allocation of the size of `error` plus two words.
    ///
    /// ```
    /// use rookery_error::Error;
    ///
    /// let error = Error::new(std::fmt::Error);
    /// assert!(error.is::<std::fmt::Error>());
    /// ```
    #[inline]
    pub fn new<E: StdError + Send + Sync + 'static>(error: E) -> Error {
        Error(Repr::new(Concrete(error)))
    }

    /// Makes an error from a static message.
    ///
    /// The argument is a reference to a reference, because that is one word and a `&str` is two.
    /// For a literal, write `&` before it.
    ///
    /// # Allocation
    /// None, and none for clones of the error.
    ///
    /// ```
    /// use rookery_error::Error;
    ///
    /// const NOT_FOUND: Error = Error::from_static(&"not found");
    /// assert_eq!(NOT_FOUND.to_string(), "not found");
    /// ```
    #[inline]
    pub const fn from_static(message: &'static &'static str) -> Error {
        Error(Repr::from_static_str(message))
    }

    /// Makes an error from an error that is stored in a `static`. The result can be downcast to the
    /// type of that error.
    ///
    /// # Allocation
    /// None, and none for clones of the error.
    #[inline]
    pub const fn from_static_error<E>(error: &'static StaticError<E>) -> Error {
        Error(Repr::from_static(error))
    }

    /// Makes an error with a formatted message. The macro [`error!`](crate::error!) is a shorter
    /// way to do so.
    ///
    /// # Allocation
    /// One allocation for a message of up to 256 bytes. A longer message costs several, because it
    /// is collected in a `String`, which grows by doubling.
    pub fn format(arguments: fmt::Arguments<'_>) -> Error {
        Error(message::format(arguments))
    }

    /// Adds a context to the error: a message that says what was being done. This error becomes the
    /// [`source`](Error::source) of the result.
    ///
    /// # Allocation
    /// One allocation of the size of `context` plus three words.
    ///
    /// ```
    /// use rookery_error::{Error, error};
    ///
    /// let error = Error::new(std::fmt::Error).context("writing the head");
    /// assert_eq!(error.to_string(), "writing the head");
    /// assert!(format!("{error:#}").starts_with("writing the head: an error occurred"));
    /// assert!(error.is::<std::fmt::Error>());
    /// ```
    #[must_use]
    pub fn context<C: fmt::Display + Send + Sync + 'static>(self, context: C) -> Error {
        Error(Repr::new(Layer::new(context, self)))
    }

    /// Captures a backtrace of this call and adds it to the error.
    ///
    /// # Allocation
    /// One allocation for the error, and further ones for the backtrace. The capture takes
    /// microseconds.
    #[must_use]
    pub fn with_backtrace(self) -> Error {
        Error(Repr::new(Traced::new(Backtrace::force_capture(), self.without_backtrace())))
    }

    /// Returns the backtrace that was captured last for this error or for an error that it wraps,
    /// or `None` if there is no backtrace.
    pub fn backtrace(&self) -> Option<&Backtrace> {
        self.layers().find_map(|error| error.0.content().backtrace())
    }

    /// Returns a reference to the value of type `E` in this error, or `None` if there is none.
    /// Searches the contexts of this error, the outermost first, and then the error to which the
    /// contexts were added.
    ///
    /// The sources of that error are not searched; use [`chain`](Error::chain) for them.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.layers().find_map(|error| {
            let context = error.0.content().context();
            context.and_then(<dyn Any>::downcast_ref).or_else(|| error.object().downcast_ref())
        })
    }

    /// Returns true if [`downcast_ref`](Error::downcast_ref) finds an error of type `E` in this
    /// error.
    pub fn is<E: StdError + 'static>(&self) -> bool {
        self.downcast_ref::<E>().is_some()
    }

    /// Returns the value of type `E` that [`downcast_ref`](Error::downcast_ref) finds in this
    /// error. Its contexts, its backtrace and the errors inside it are dropped.
    ///
    /// # Errors
    /// This error, unchanged, if it has no such value, or if the value cannot be moved because it
    /// has other owners: the error has clones, is static, or was converted from an `Arc`.
    ///
    /// # Allocation
    /// At most one allocation, for the value.
    ///
    /// ```
    /// use rookery_error::Error;
    ///
    /// let error = Error::new(std::io::Error::other("disk")).context("saving");
    /// let error: std::io::Error = error.downcast()?;
    /// assert_eq!(error.to_string(), "disk");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn downcast<E: StdError + Send + Sync + 'static>(self) -> Result<E, Error> {
        let contains = |error: &Error| match error.0.content().context() {
            Some(context) => context.is::<E>(),
            None => !error.is_layer() && error.arc().is_none() && error.object().is::<E>(),
        };
        let Some(depth) = self.layers().position(contains) else { return Err(self) };
        if !self.layers().take(depth + 1).all(|error| error.0.is_unique()) {
            return Err(self);
        }
        let error = self.layers().nth(depth).cloned().expect("this layer was found above");
        // Makes `error` the only handle. No thread can have made another one, because this function
        // owns the outermost layer.
        drop(self);
        let value = error.0.into_boxed().map_err(Error)?;
        match value.downcast::<Layer<E>>() {
            Ok(layer) => Ok(layer.into_context()),
            Err(value) => value.downcast().map(|value| *value).map_err(Error::from),
        }
    }

    /// Returns the source of this error: the error that caused it, if any.
    pub fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.object().source()
    }

    /// Returns an iterator over this error, its source, the source of that source, and so on.
    ///
    /// ```
    /// use rookery_error::error;
    ///
    /// let error = error!("connection reset").context("reading the head");
    /// let chain: Vec<_> = error.chain().map(ToString::to_string).collect();
    /// assert_eq!(chain, ["reading the head", "connection reset"]);
    /// ```
    pub fn chain(&self) -> Chain<'_> {
        Chain::new(self.object())
    }

    pub(crate) fn from_repr(repr: Repr) -> Error {
        Error(repr)
    }

    pub(crate) fn into_repr(self) -> Repr {
        self.0
    }

    pub(crate) fn object(&self) -> &Object {
        self.0.content().object()
    }

    /// Returns the `Arc` that contains the error, if the error was converted from an `Arc`.
    pub(crate) fn arc(&self) -> Option<&std::sync::Arc<Object>> {
        self.0.content().arc()
    }

    pub(crate) fn is_layer(&self) -> bool {
        self.0.content().wrapped().is_some()
    }

    /// Returns an iterator over this error and the errors that its layers wrap, from the outermost
    /// inwards. Each call of [`context`](Error::context) or
    /// [`with_backtrace`](Error::with_backtrace) adds a layer.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Error> {
        std::iter::successors(Some(self), |error| error.0.content().wrapped())
    }

    /// Returns true if the outermost layer of this error is a context: a message that
    /// [`context`](Error::context) has added.
    pub(crate) fn is_context(&self) -> bool {
        self.0.content().context().is_some()
    }

    /// Removes the outermost layer of this error if that layer is a backtrace.
    fn without_backtrace(self) -> Error {
        let content = self.0.content();
        match content.wrapped() {
            Some(error) if content.backtrace().is_some() => error.clone(),
            _ => self,
        }
    }
}

impl Deref for Error {
    type Target = dyn StdError + Send + Sync + 'static;

    fn deref(&self) -> &Self::Target {
        self.object()
    }
}

impl AsRef<dyn StdError + Send + Sync + 'static> for Error {
    fn as_ref(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self.object()
    }
}

impl AsRef<dyn StdError + 'static> for Error {
    fn as_ref(&self) -> &(dyn StdError + 'static) {
        self.object()
    }
}

/// Prints the outermost message of the error; with `{:#}` prints the messages of the whole chain as
/// `outer: inner: innermost`.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        chain::display(self, f)
    }
}

/// Prints the chain of the error and its sources over several lines, and then the error's backtrace
/// if there is one. `unwrap` prints this text when it panics. `{:#?}` prints the `Debug` output of
/// the value in the error instead.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        chain::debug(self, f)
    }
}
