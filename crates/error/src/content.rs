//! What an error may hold.

use std::any::Any;
use std::backtrace::Backtrace;
use std::error::Error as StdError;
use std::sync::Arc;

use crate::Error;

/// What every error is underneath.
pub(crate) type Object = dyn StdError + Send + Sync + 'static;

/// What an error holds: usually just a foreign error, sometimes a layer around another [`Error`].
pub(crate) trait Content: Send + Sync + 'static {
    /// The error that is shown, whose source is followed, and that is downcast.
    fn object(&self) -> &Object;

    /// The error that this one is a layer around.
    fn wrapped(&self) -> Option<&Error> {
        None
    }

    /// What this layer adds.
    fn context(&self) -> Option<&dyn Any> {
        None
    }

    /// Moves the error out that this one is a layer around, so that dropping one does not drop the
    /// other.
    fn take_wrapped(&mut self) -> Option<Error> {
        None
    }

    /// The backtrace of this very layer.
    fn backtrace(&self) -> Option<&Backtrace> {
        None
    }

    /// The arc that the error came in.
    fn arc(&self) -> Option<&Arc<Object>> {
        None
    }

    /// Gives the error up to a box of its own.
    fn into_boxed(self) -> Box<Object>;

    /// Gives the error up to an arc of its own.
    fn into_arc(self) -> Arc<Object>
    where
        Self: Sized,
    {
        self.into_boxed().into()
    }
}

/// A foreign error by value.
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

/// A foreign error that arrived in a box. The box is kept: nothing is known of its content, so moving it would cost
/// a copy and a free, and save nothing but one pointer.
pub(crate) struct Boxed(pub(crate) Box<Object>);

impl Content for Boxed {
    fn object(&self) -> &Object {
        &*self.0
    }

    fn into_boxed(self) -> Box<Object> {
        self.0
    }
}

/// A foreign error that arrived in an arc, which others may hold as well.
pub(crate) struct Shared(pub(crate) Arc<Object>);

impl Content for Shared {
    fn object(&self) -> &Object {
        &*self.0
    }

    fn arc(&self) -> Option<&Arc<Object>> {
        Some(&self.0)
    }

    /// The arc itself is the error in the box: what it holds cannot be moved out.
    fn into_boxed(self) -> Box<Object> {
        Box::new(self.0)
    }

    fn into_arc(self) -> Arc<Object> {
        self.0
    }
}
