//! The connection, over a transport in memory.
#![cfg(not(miri))] // hours of Miri; the unsafe code has unit tests

mod cancellation;
mod closing;
mod compression;
mod failures;
mod halves;
mod support;
mod timing;
