//! A listening socket that is registered with the async runtime.

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod system;

pub(crate) use self::system::WatchedSocket;
