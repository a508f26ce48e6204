//! The atomics of the shared memory, as the tests need them:
//!
//! - Outside tests, they are those of the standard library.
//! - In tests, a process can be stopped after any of its stores (`counted`).
//! - In the models of `rings/model.rs`, they are loom's (`modelled`).

#[cfg(not(test))]
mod plain;
#[cfg(not(test))]
pub(crate) use self::plain::{AtomicU32, AtomicU64, AtomicUsize, after_store, fence};

#[cfg(all(test, not(loom)))]
pub(crate) mod counted;
#[cfg(all(test, not(loom)))]
pub(crate) use self::counted::{AtomicU32, AtomicU64, AtomicUsize, after_store, fence};

#[cfg(all(test, loom))]
mod modelled;
#[cfg(all(test, loom))]
pub(crate) use self::modelled::{AtomicU32, AtomicU64, AtomicUsize, fence, shared_wait};
