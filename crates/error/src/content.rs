//! The contents of an error.

use std::any::Any;
use std::backtrace::Backtrace;
use std::error::Error as StdError;
use std::sync::Arc;

use crate::Error;

/// The trait object that every error yields.
pub(crate) type Object = dyn StdError + Send + Sync + 'static;

/// The content of an error: usually an error of another crate, sometimes a layer around another
/// [`Error`].
pub(crate) trait Content: Send + Sync + 'static {
    /// Returns the error that is displayed, whose source is followed, and that can be downcast.
    fn object(&self) -> &Object;

    /// Returns the error that this layer wraps.
    fn wrapped(&self) -> Option<&Error> {
        None
    }

    /// Returns the context that this layer adds.
    fn context(&self) -> Option<&dyn Any> {
        None
    }

    /// Moves the wrapped error out, so that dropping the layer does not drop the wrapped error
    /// recursively.
    fn take_wrapped(&mut self) -> Option<Error> {
        None
    }

    /// Returns the backtrace of this layer.
    fn backtrace(&self) -> Option<&Backtrace> {
        None
    }

    /// Returns the arc in which the error arrived.
    fn arc(&self) -> Option<&Arc<Object>> {
        None
    }

    /// Moves the error into a box.
    fn into_boxed(self) -> Box<Object>;

    /// Moves the error into an arc.
    fn into_arc(self) -> Arc<Object>
    where
        Self: Sized,
    {
        self.into_boxed().into()
    }
}

/// An error of another crate, by value.
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

/// An error of another crate that arrived in a box. The box is kept, because its content has an
/// unknown type: moving it would cost a copy and a free, and save only one pointer.
pub(crate) struct Boxed(pub(crate) Box<Object>);

impl Content for Boxed {
    fn object(&self) -> &Object {
        &*self.0
    }

    fn into_boxed(self) -> Box<Object> {
        self.0
    }
}

/// An error of another crate that arrived in an arc, which may have other owners.
pub(crate) struct Shared(pub(crate) Arc<Object>);

impl Content for Shared {
    fn object(&self) -> &Object {
        &*self.0
    }

    fn arc(&self) -> Option<&Arc<Object>> {
        Some(&self.0)
    }

    /// The arc itself becomes the error in the box, because its content cannot be moved out.
    fn into_boxed(self) -> Box<Object> {
        Box::new(self.0)
    }

    fn into_arc(self) -> Arc<Object> {
        self.0
    }
}
