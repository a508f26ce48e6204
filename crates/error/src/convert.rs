//! From whatever came, and to whatever is asked for.

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

/// Anything that converts to a boxed error, so that `?` takes it.
///
/// # Allocation
/// One for a `&str`, a `String`, a `Cow<str>`, a `Box<dyn Error + Send + Sync>` and an `Arc<dyn Error + Send + Sync>`, both
/// of which are kept; two for a concrete error, which [`Error::new`] makes one.
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
    /// The error in a box, for interfaces that ask for one. Back again is `From`.
    ///
    /// If this is the only handle of an error on the heap, and no context was put around it, the box holds the very
    /// error that was given to [`Error::new`], or is the box that was converted. Else it holds a wrapper around this
    /// handle, which shows the same and has the same source, but is not of the error's type.
    ///
    /// # Allocation
    /// One, or none if the error came in a box.
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
            // Its layers would no longer be seen as such after the way back.
            return Box::new(Handle(self));
        }
        self.into_repr()
            .into_boxed()
            .unwrap_or_else(|repr| Box::new(Handle(Error::from_repr(repr))))
    }

    /// The error in an `Arc`, as `throw_error` has it. Back again is `From`.
    ///
    /// It is the very arc that was converted; or it holds the very error that was given to [`Error::new`] or came in a box,
    /// so that `is::<E>()` is as true of it, if this is the only handle of that error and no context was put around it.
    /// Else, since nothing can be moved out of an error that others hold, it holds a wrapper around this handle, which
    /// shows the same and has the same source, but is not of the error's type: downcast before, or keep one handle.
    ///
    /// # Allocation
    /// One, or none if the error came in an arc; three for text.
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
/// There is no such conversion to `Box<dyn Error + Send + Sync>`: it would let an [`Error`] convert
/// to itself in two ways. Call [`Error::into_boxed`] where one is asked for.
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

/// A handle where a `std::error::Error` is asked for.
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

/// What [`Error::into_boxed`] put into a box, as it was before.
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

/// `value` as a `To`, if that is what `From` is, lifetimes aside. `To` is chosen so that these do not matter: text that
/// is read before this returns to code that knows the lifetime, or an arc, which converts to a box of a `'static` error (the
/// bound of `from`) only if it holds one.
#[inline]
fn cast<From, To: Known>(value: From) -> Result<To, From> {
    if type_id::<From>() == TypeId::of::<To::Static>() && size_of::<From>() == size_of::<To>() {
        let value = ManuallyDrop::new(value);
        // SAFETY: the types are equal up to lifetimes, so that layout and validity are; the value is not used again.
        // The lifetime of a text is free for the caller to choose, who (above) ends it within `from`, during which
        // every lifetime in `From` is alive. An arc has none to choose: `From` is `'static`, as said above.
        return Ok(unsafe { mem::transmute_copy::<ManuallyDrop<From>, To>(&value) });
    }
    Err(value)
}

/// What takes a shorter way than that of a box: text would be allocated twice or three times, and an arc would be the error
/// instead of what it holds.
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

/// The id of `T` with every lifetime in it made `'static`.
#[inline]
fn type_id<T>() -> TypeId {
    let erased: &dyn Identified = &PhantomData::<T>;
    // SAFETY: only the bound of the trait object changes. A `PhantomData` holds nothing that could be too short-lived,
    // and type ids know no lifetimes, so `id` returns the same for every choice of them.
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
