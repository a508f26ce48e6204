//! A substitute for the registry of descriptors that a forked child must close, on systems without
//! `fork`. It does nothing.

/// A set of descriptors that a forked child process would close.
#[derive(Debug)]
pub struct ForkRegistry(());

impl ForkRegistry {
    /// Creates an empty set, for a static variable.
    #[expect(clippy::new_without_default, reason = "Default::default() cannot be const")]
    pub const fn new() -> ForkRegistry {
        ForkRegistry(())
    }

    /// Returns a guard that has no effect.
    pub fn mark<T>(&'static self, _: &T) -> CloseInChild {
        CloseInChild(())
    }

    /// Does nothing.
    pub fn close_all(&self) {}
}

/// A guard that has no effect, because no process is ever forked.
#[derive(Debug)]
pub struct CloseInChild(());
