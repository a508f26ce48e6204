//! The types of content that an `Error` can have, such as an error of another crate.

use std::any::Any;
use std::backtrace::Backtrace;
use std::error::Error as StdError;
use std::sync::Arc;

use crate::Error;

/// The trait object through which the content of every `Error` is accessed.
pub(crate) type Object = dyn StdError + Send + Sync + 'static;

/// The content of an [`Error`]: usually an error of another crate, sometimes a layer (a context or
/// a backtrace) around another [`Error`].
pub(crate) trait Content: Send + Sync + 'static {
    /// Returns the content as an error object. Displaying the error, finding its source and
    /// downcasting all use this object.
    fn object(&self) -> &Object;

    /// Returns the error that this layer (a context or a backtrace) wraps, or `None` if the content
    /// is not a layer.
    fn wrapped(&self) -> Option<&Error> {
        None
    }

    /// Returns the context that this layer adds to the wrapped error, if any.
    fn context(&self) -> Option<&dyn Any> {
        None
    }

    /// Moves the wrapped error out of this layer, so that dropping the layer does not drop the
    /// wrapped error recursively.
    fn take_wrapped(&mut self) -> Option<Error> {
        None
    }

    /// Returns the backtrace that this layer adds to the wrapped error, if any.
    fn backtrace(&self) -> Option<&Backtrace> {
        None
    }

    /// Returns the `Arc` that contains the error, if the error was converted from an `Arc`.
    fn arc(&self) -> Option<&Arc<Object>> {
        None
    }

    /// Moves the content of an `Error` into a box.
    fn into_boxed(self) -> Box<Object>;

    /// Moves the content of an `Error` into an `Arc`.
    fn into_arc(self) -> Arc<Object>
    where
        Self: Sized,
    {
        self.into_boxed().into()
    }
}

/// The content of an `Error` that was made from an error of another crate, passed by value.
#[repr(transparent)]
pub(crate) struct Concrete<E>(pub(crate) E);

impl<E: StdError + Send + Sync + 'static> Content for Concrete<E> {
    fn object(&self) -> &Object {
        &self.0
    }

    fn into_boxed(self) -> Box<Object> {
        Box::new(self.0)
    }

    fn into_arc(self) -> Arc<Object> {
        Arc::new(self.0)
    }
}

/// The content of an `Error` that was converted from a boxed error. The boxed error stays in its
/// box: moving it out would cost a copy and a free, and save only one pointer.
pub(crate) struct Boxed(pub(crate) Box<Object>);

impl Content for Boxed {
    fn object(&self) -> &Object {
        &*self.0
    }

    fn into_boxed(self) -> Box<Object> {
        self.0
    }
}

/// The content of an `Error` that was converted from an `Arc`. The `Arc` may have other owners.
pub(crate) struct Shared(pub(crate) Arc<Object>);

impl Content for Shared {
    fn object(&self) -> &Object {
        &*self.0
    }

    fn arc(&self) -> Option<&Arc<Object>> {
        Some(&self.0)
    }

    /// Puts the `Arc` itself into the box, because the error cannot be moved out of the `Arc`.
    fn into_boxed(self) -> Box<Object> {
        Box::new(self.0)
    }

    fn into_arc(self) -> Arc<Object> {
        self.0
    }
}
