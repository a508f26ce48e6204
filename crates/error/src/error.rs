//! The error itself.

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

/// Any error, in one machine word.
///
/// It is `Send`, `Sync` and cheap to clone (one atomic increment, or nothing for a static one). `Option<Error>` and
/// `Result<(), Error>` are one word too, so that `?` through ten frames moves ten words.
///
/// # What making one costs
/// | from | allocations |
/// |---|---|
/// | [`Error::from_static`], [`Error::from_static_error`], [`error!`](crate::error!) of a plain literal | 0 |
/// | [`Error::new`] of a concrete error | 1 |
/// | `From<&str>`, `From<String>`, `From<Cow<str>>` | 1 |
/// | `From<Box<dyn Error + Send + Sync>>`, `From<Arc<dyn Error + Send + Sync>>`: kept, not copied | 1 |
/// | [`error!`](crate::error!) with arguments | 1 up to 256 bytes; above, that and those of a growing `String` |
/// | `From` any other error, that is `?` on it | 2 |
///
/// The last line is the price of `?` on a foreign error: the one conversion that covers everything goes by way of a
/// box. `.map_err(Error::new)?` saves that box; use it where errors are frequent.
///
/// # `Error` does not implement `std::error::Error`
/// It could not have that conversion then (it would overlap with `From<T> for T`). It dereferences to
/// `dyn std::error::Error`, and [`into_boxed`](Error::into_boxed) makes a box of one.
///
/// # Backtraces
/// None is captured unless [`with_backtrace`](Error::with_backtrace) is called. The environment is not asked: a
/// capture takes microseconds, which a server must not pay for each bad request because `RUST_BACKTRACE` is set.
#[derive(Clone)]
#[repr(transparent)]
pub struct Error(Repr);

impl Error {
    /// Holds `error`.
    ///
    /// # Allocation
    /// One, of the error's size and two words.
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

    /// Shows a message that is part of the program.
    ///
    /// It takes a reference to the `str`'s reference because that is one word; for a literal, `&` does it.
    ///
    /// # Allocation
    /// None, also not for clones.
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

    /// Refers to an error that is part of the program, and can be downcast to its type.
    ///
    /// # Allocation
    /// None, also not for clones.
    #[inline]
    pub const fn from_static_error<E>(error: &'static StaticError<E>) -> Error {
        Error(Repr::from_static(error))
    }

    /// Formats a message; [`error!`](crate::error!) is shorter.
    ///
    /// # Allocation
    /// One for up to 256 bytes. A longer message is collected in a `String`, which grows by
    /// doubling and is kept: two if its text comes in one piece, and at most one more for each
    /// doubling of 256 bytes.
    pub fn format(arguments: fmt::Arguments<'_>) -> Error {
        Error(message::format(arguments))
    }

    /// Says what was being done. The error becomes the [`source`](Error::source) of the result.
    ///
    /// # Allocation
    /// One, of `context`'s size and three words.
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

    /// Captures the backtrace of this call.
    ///
    /// # Allocation
    /// One, and those of the capture, which takes microseconds.
    #[must_use]
    pub fn with_backtrace(self) -> Error {
        Error(Repr::new(Traced::new(Backtrace::force_capture(), self.without_backtrace())))
    }

    /// The backtrace captured last for this error or one it is context of.
    pub fn backtrace(&self) -> Option<&Backtrace> {
        self.layers().find_map(|error| error.0.content().backtrace())
    }

    /// The error of the type `E` that this is, or has as context, or is context around; the outermost of them.
    ///
    /// Sources that the error itself brought along are not searched: [`chain`](Error::chain) has them.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.layers().find_map(|error| {
            let context = error.0.content().context();
            context.and_then(<dyn Any>::downcast_ref).or_else(|| error.object().downcast_ref())
        })
    }

    /// Whether [`downcast_ref`](Error::downcast_ref) finds an `E`.
    pub fn is<E: StdError + 'static>(&self) -> bool {
        self.downcast_ref::<E>().is_some()
    }

    /// What caused this error.
    pub fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.object().source()
    }

    /// This error, its source, the source of that, and so on.
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

    /// The last of the [`chain`](Error::chain).
    pub fn root_cause(&self) -> &(dyn StdError + 'static) {
        self.chain().last().expect("the chain starts with the error itself")
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

    /// The arc that it came in.
    pub(crate) fn arc(&self) -> Option<&std::sync::Arc<Object>> {
        self.0.content().arc()
    }

    pub(crate) fn is_layer(&self) -> bool {
        self.0.content().wrapped().is_some()
    }

    /// This error and those it was put around by [`context`](Error::context) and
    /// [`with_backtrace`](Error::with_backtrace), outermost first.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Error> {
        std::iter::successors(Some(self), |error| error.0.content().wrapped())
    }

    /// Whether this is a layer that [`context`](Error::context) put around an error.
    pub(crate) fn is_context(&self) -> bool {
        self.0.content().context().is_some()
    }

    /// Returns the error beneath the outermost layer if that is a backtrace, and this error
    /// otherwise.
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

/// Shows the error's own level; with `{:#}` the whole chain, `outer: inner: innermost`.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        chain::display(self, f)
    }
}

/// Shows the chain over several lines, then the backtrace if there is one: this is what a panic on `unwrap` prints.
/// `{:#?}` is the derived `Debug` of the error underneath.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        chain::debug(self, f)
    }
}
