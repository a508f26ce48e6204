//! The pool before workers that are small servers in this process, and the supervisor with processes of its own.

mod accepting;
mod busy;
mod ending_with_workers;
mod ends;
mod events;
mod fake;
mod front;
mod half_closed;
mod heads;
mod hostile;
mod logged;
mod number;
mod placing;
mod pooling;
mod program;
mod reloads;
mod replies;
mod retrying;
mod running;
mod session_urls;
mod sockets;
mod spares;
mod starts;
mod static_paths;
mod status;
mod stickiness;
