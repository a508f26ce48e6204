//! Exchanges, events and commands as plain data, on their way between the process that has the
//! client's connection (the front end) and the process that runs the application (the worker).
//! Numbers are little-endian, and texts have their length before them.
//!
//! A record consists of a kind and bytes. [`Down`] is a record to the worker, and [`Up`] a record
//! to the front end. From a hostile worker, the functions that read an `Up` accept only what an
//! application in the server's own process could do as well.

mod down;
mod reader;
mod request;
mod response;
#[cfg(test)]
mod tests;
mod up;

pub use self::down::{Down, RequestForm};
use self::reader::{Reader, write_address, write_text};
pub use self::request::{read_request, write_request};
pub use self::response::{ResponseContent, read_response, response_body};
pub use self::up::Up;

/// The kinds of records.
mod kind {
    pub(super) const REQUEST: u8 = 1;
    pub(super) const TEXT: u8 = 2;
    pub(super) const BINARY: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const RESPONSE: u8 = 5;
    pub(super) const PING: u8 = 6;
    pub(super) const ABORT: u8 = 7;
    pub(super) const UNSENDABLE: u8 = 8;
    pub(super) const CHUNK: u8 = 9;
    pub(super) const RESUME_PULLS: u8 = 10;
    pub(super) const SEND_HEAD: u8 = 11;
    pub(super) const END_STREAM: u8 = 12;
    pub(super) const ABORT_STREAM: u8 = 13;
    pub(super) const DRAINED: u8 = 14;
    pub(super) const SENT: u8 = 15;
    pub(super) const PULL: u8 = 16;
    pub(super) const WRITTEN: u8 = 17;
    pub(super) const STREAM_ENDED: u8 = 18;
    pub(super) const DECLINED: u8 = 19;
    pub(super) const HEAD_FIRST: u8 = 20;
    pub(super) const HEAD_ONLY: u8 = 21;
    pub(super) const READ_BODY: u8 = 22;
}

/// The error for bytes that are not a valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The length of a request body above which the body is read into a buffer of a pool.
const MAX_ARENA_BODY: usize = 64 << 10;
