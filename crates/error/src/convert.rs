//! Conversions into errors, and from errors.

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

/// Converts anything that converts to a boxed error, so that `?` accepts it.
///
/// # Allocation
/// One allocation for a `&str`, a `String`, a `Cow<str>`, a `Box<dyn Error + Send + Sync>` and an
/// `Arc<dyn Error + Send + Sync>`; the box and the arc are kept. Two for a concrete error, for
/// which [`Error::new`] allocates once.
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
    /// Returns the error in a box, for interfaces that need one. `From` converts the box back.
    ///
    /// If this is the only handle of an error on the heap, and the error has no context, the box
    /// contains the error that was passed to [`Error::new`], or is the box that was converted.
    /// Otherwise it contains a wrapper around this handle, which has the same message and source,
    /// but not the type of the error.
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

    /// Returns the error in an `Arc`, as in the crate `throw_error`. `From` converts the arc back.
    ///
    /// If the error arrived in an arc, the result is that arc. If this is the only handle and the
    /// error has no context, the arc contains the error that was passed to [`Error::new`] or
    /// arrived in a box, so that `is::<E>()` gives the same result. Otherwise nothing can be moved
    /// out of the shared error, and the arc contains a wrapper around this handle, which has the
    /// same message and source, but not the type of the error. Downcast first in that case, or keep
    /// only one handle.
    ///
    /// # Allocation
    /// One allocation, or none if the error arrived in an arc; three for text.
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
/// There is no such conversion to `Box<dyn Error + Send + Sync>`, because an [`Error`] could then
/// be converted to itself in two ways. Call [`Error::into_boxed`] where such a box is needed.
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

/// A shared error in the role of a `std::error::Error`.
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

/// Restores the error that [`Error::into_boxed`] has put into a box.
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

/// Returns `value` as a `To` if `From` is the same type, apart from lifetimes. `To` is chosen so
/// that lifetimes do not matter: it is either text, which is read before this returns to code that
/// knows the lifetime, or an arc, which converts to a box of a `'static` error (the bound of
/// `from`) only if it contains one.
#[inline]
fn cast<From, To: Known>(value: From) -> Result<To, From> {
    if type_id::<From>() == TypeId::of::<To::Static>() && size_of::<From>() == size_of::<To>() {
        let value = ManuallyDrop::new(value);
        // SAFETY: the types are equal except for lifetimes, so their layout and validity are equal,
        // and the value is not used again. The caller chooses the lifetime of a text and (see
        // above) ends it within `from`, during which every lifetime in `From` is alive. For an arc
        // there is nothing to choose, because `From` is `'static`, as explained above.
        return Ok(unsafe { mem::transmute_copy::<ManuallyDrop<From>, To>(&value) });
    }
    Err(value)
}

/// The types that are converted without the detour of a box. By that detour, text would be
/// allocated two or three times, and an arc would become the error instead of its content.
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

/// Returns the id of `T` with each lifetime in it replaced by `'static`.
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
