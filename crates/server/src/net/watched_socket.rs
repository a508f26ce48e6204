//! A listening socket that is registered with the async runtime.

#[cfg_attr(unix, path = "watched_socket/unix.rs")]
#[cfg_attr(windows, path = "watched_socket/windows.rs")]
mod system;
mod tcp_accept;

pub(crate) use self::system::WatchedSocket;
