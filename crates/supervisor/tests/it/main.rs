//! The pool before workers that are small servers in this process, and the supervisor with processes of its own.

mod fake;
mod front;
mod pooling;
mod retrying;
mod sockets;
