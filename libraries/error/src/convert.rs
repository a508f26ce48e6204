//! Conversions from other types into [`Error`], and from [`Error`] into other types.

#![allow(unsafe_code)]

use std::any::TypeId;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;

use crate::Error;
use crate::content::{Boxed, Object, Shared};
use crate::repr::Repr;
use crate::text::OwnedText;

/// Converts a value into an [`Error`] if its type can be converted into a boxed error. Because of
/// this implementation, `?` accepts such values.
///
/// # Allocation
/// One allocation for a `&str`, a `String`, a `Cow<str>`, a `Box<dyn Error + Send + Sync>` or an
/// `Arc<dyn Error + Send + Sync>`; a box or an `Arc` is kept, not copied. Two allocations for any
/// other error type, for which [`Error::new`] needs only one.
impl<T: Into<Box<dyn StdError + Send + Sync + 'static>>> From<T> for Error {
    #[inline]
    fn from(value: T) -> Error {
        match cast::<T, &str>(value) {
            Ok(text) => from_str(text),
            Err(value) => match cast::<T, String>(value) {
                Ok(text) => from_string(text),
                Err(value) => match cast::<T, Cow<'_, str>>(value) {
                    Ok(Cow::Borrowed(text)) => from_str(text),
                    Ok(Cow::Owned(text)) => from_string(text),
                    Err(value) => match cast::<T, Arc<Object>>(value) {
                        Ok(arc) => from_arc(arc),
                        Err(value) => from_box(value.into()),
                    },
                },
            },
        }
    }
}

impl Error {
    /// Returns the error in a box, for interfaces that need one. `From` converts the box back into
    /// an [`Error`].
    ///
    /// What the box contains depends on this [`Error`]:
    /// - If it has clones or a context, or was made from a static error, the box contains a wrapper
    ///   around it. The wrapper has the same message and source, but another type.
    /// - If it was converted from a box, the result is that box.
    /// - If it was made by [`Error::new`], the box contains the error that was passed.
    ///
    /// # Allocation
    /// One allocation, or none if the error arrived in a box.
    ///
    /// ```
    /// use rookery_error::Error;
    ///
    /// let boxed = Error::new(std::fmt::Error).into_boxed();
    /// assert!(boxed.is::<std::fmt::Error>());
    /// assert!(Error::from(boxed).is::<std::fmt::Error>());
    /// ```
    pub fn into_boxed(self) -> Box<dyn StdError + Send + Sync + 'static> {
        if self.is_layer() {
            // The layers would not be recognised after the conversion back.
            return Box::new(Handle(self));
        }
        self.into_repr()
            .into_boxed()
            .unwrap_or_else(|repr| Box::new(Handle(Error::from_repr(repr))))
    }

    /// Returns the error in an `Arc`, for interfaces that need one. `From` converts the `Arc` back
    /// into an [`Error`].
    ///
    /// What the `Arc` contains depends on this [`Error`]:
    /// - If it was converted from an `Arc` and has no context, the result is that `Arc`.
    /// - If it was made by [`Error::new`] or converted from a box, and has neither a context nor
    ///   clones, the `Arc` contains the original error.
    /// - Otherwise the `Arc` contains a wrapper around this [`Error`]. The wrapper has the same
    ///   message and source, but another type. To avoid the wrapper for an error with clones, drop
    ///   the clones first.
    ///
    /// # Allocation
    /// One allocation, or none if the error was converted from an `Arc`; three for an error made
    /// from a text.
    ///
    /// ```
    /// use rookery_error::Error;
    ///
    /// let object = Error::new(std::fmt::Error).into_inner();
    /// assert!(object.is::<std::fmt::Error>());
    /// assert!(Error::from(object).is::<std::fmt::Error>());
    /// ```
    pub fn into_inner(self) -> Arc<dyn StdError + Send + Sync + 'static> {
        if let Some(arc) = self.arc() {
            return Arc::clone(arc);
        }
        if self.is_layer() {
            return Arc::new(Handle(self));
        }
        self.into_repr().into_arc().unwrap_or_else(|repr| Arc::new(Handle(Error::from_repr(repr))))
    }
}

/// Boxes the error as [`Error::into_boxed`] does, so that `?` works in functions that return
/// `Box<dyn Error>`.
///
/// To get a `Box<dyn Error + Send + Sync>`, call [`Error::into_boxed`]. A `From` conversion to that
/// type is impossible, because it would conflict with the `From` conversion of an [`Error`] to
/// itself.
///
/// ```
/// fn read() -> Result<(), Box<dyn std::error::Error>> {
///     Err(rookery_error::error!("no such file"))?
/// }
/// assert_eq!(read().unwrap_err().to_string(), "no such file");
/// ```
impl From<Error> for Box<dyn StdError> {
    fn from(error: Error) -> Box<dyn StdError> {
        error.into_boxed()
    }
}

/// A wrapper around an [`Error`] that implements `std::error::Error`.
struct Handle(Error);

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl StdError for Handle {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

#[inline]
fn from_str(text: &str) -> Error {
    Error::from_repr(Repr::text(text))
}

#[inline]
fn from_string(text: String) -> Error {
    Error::from_repr(Repr::new(OwnedText(text)))
}

fn from_box(error: Box<Object>) -> Error {
    if error.is::<Handle>() || error.is::<Arc<Object>>() {
        return from_own_box(error);
    }
    Error::from_repr(Repr::new(Boxed(error)))
}

/// Converts a box into an [`Error`]. If [`Error::into_boxed`] made the box, restores the original
/// [`Error`].
#[cold]
fn from_own_box(error: Box<Object>) -> Error {
    match error.downcast::<Handle>() {
        Ok(handle) => handle.0,
        Err(error) => match error.downcast::<Arc<Object>>() {
            Ok(arc) => from_arc(*arc),
            Err(error) => Error::from_repr(Repr::new(Boxed(error))),
        },
    }
}

fn from_arc(error: Arc<Object>) -> Error {
    match error.downcast_ref::<Handle>() {
        Some(handle) => handle.0.clone(),
        None => Error::from_repr(Repr::new(Shared(error))),
    }
}

/// Returns `value` as a `To` in `Ok` if `From` and `To` are the same type apart from lifetimes.
/// Otherwise returns it unchanged in `Err`.
#[inline]
fn cast<From, To: Known>(value: From) -> Result<To, From> {
    if type_id::<From>() == TypeId::of::<To::Static>() && size_of::<From>() == size_of::<To>() {
        let value = ManuallyDrop::new(value);
        // SAFETY: the types are equal except for lifetimes, so their layout and validity are equal,
        // and the value is not used again. The caller chooses the lifetime of a text and ends it
        // within `from`, during which every lifetime in `From` is alive. For an arc there is
        // nothing to choose: its error is `'static`, because the bound of `from` requires a box of
        // a `'static` error.
        return Ok(unsafe { mem::transmute_copy::<ManuallyDrop<From>, To>(&value) });
    }
    Err(value)
}

/// A text type or `Arc`, which is converted into an [`Error`] directly and not through a box. A
/// text in a box would cost two or three allocations. An `Arc` in a box would make the `Arc` itself
/// the content of the [`Error`], instead of the error in the `Arc`.
trait Known {
    type Static: 'static;
}

impl Known for &str {
    type Static = &'static str;
}

impl Known for String {
    type Static = String;
}

impl Known for Cow<'_, str> {
    type Static = Cow<'static, str>;
}

impl Known for Arc<Object> {
    type Static = Arc<Object>;
}

/// Returns the type id of `T`, with each lifetime in `T` replaced by `'static`.
#[inline]
fn type_id<T>() -> TypeId {
    let erased: &dyn Identified = &PhantomData::<T>;
    // SAFETY: only the bound of the trait object changes. A `PhantomData` contains no reference,
    // and type ids ignore lifetimes, so `id` returns the same for each choice of them.
    let erased = unsafe { mem::transmute::<&dyn Identified, &(dyn Identified + 'static)>(erased) };
    erased.id()
}

trait Identified {
    fn id(&self) -> TypeId
    where
        Self: 'static;
}

impl<T> Identified for PhantomData<T> {
    fn id(&self) -> TypeId
    where
        Self: 'static,
    {
        TypeId::of::<T>()
    }
}
