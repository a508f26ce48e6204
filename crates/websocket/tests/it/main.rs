//! The connection, over a transport in memory.

mod cancellation;
mod closing;
mod compression;
mod failures;
mod halves;
mod support;
mod timing;
