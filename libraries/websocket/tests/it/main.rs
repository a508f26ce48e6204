//! Tests of the connection over a transport in memory.
#![cfg(not(miri))] // hours of Miri; the unsafe code has unit tests

mod cancel_safety;
mod cancellation;
mod closing;
mod compression;
mod endings;
mod failures;
mod halves;
mod interop;
mod program;
mod replies;
mod support;
mod timing;
mod writing;
