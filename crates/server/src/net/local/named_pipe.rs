//! Named pipes on which a server listens, on Windows.
//!
//! A pipe consists of instances, each for one client. There is always an instance that no client
//! has yet. It is created before its predecessor is served, so that a client never finds the name
//! without an instance.

#![allow(clippy::unused_self, clippy::unnecessary_wraps)] // These are the functions of a socket.

use std::io;
use std::os::windows::ffi::OsStrExt as _;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, IntoRawHandle as _, OwnedHandle};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rookery_system::fork::CloseInChild;
use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};
use windows_sys::Win32::Foundation::{ERROR_ACCESS_DENIED, ERROR_PIPE_BUSY, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, PIPE_ACCESS_DUPLEX,
};
use windows_sys::Win32::System::Pipes::{
    CreateNamedPipeW, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE,
    PIPE_UNLIMITED_INSTANCES, PIPE_WAIT,
};

use super::LocalStream;
use super::pipe_permissions::PipePermissions;
use crate::net::descriptor::close_in_child;

/// The beginning of the name of every named pipe of this machine.
const PREFIX: &str = r"\\.\pipe\";

/// The size in bytes of the system's buffer for each direction of a pipe.
const BUFFER_BYTES: u32 = 64 << 10;

/// Converts the number of a Windows error to the type of the standard library.
fn number(error: u32) -> i32 {
    i32::try_from(error).unwrap_or(i32::MAX)
}

/// A named pipe on which a server listens.
#[derive(Debug)]
pub(crate) struct LocalListener {
    name: PathBuf,
    /// The instance for the next client. It is registered with the async runtime by the first
    /// `accept`.
    next: Mutex<Instance>,
}

#[derive(Debug)]
enum Instance {
    /// An instance that is not registered with an async runtime yet.
    Unregistered(OwnedHandle),
    Registered(NamedPipeServer),
    /// No instance could be created, or it is being replaced.
    Missing,
}

/// Creates a named pipe. Only processes of this machine can connect, as the user of this process,
/// as an administrator or as the system.
///
/// # Errors
/// Fails with `Unsupported` if `name` is not that of a named pipe, with `AddrInUse` if a process
/// already listens on it, and otherwise with the system's error.
pub(crate) fn bind(name: &Path, _: Option<u32>) -> io::Result<(LocalListener, SocketFile)> {
    let is_pipe = name.to_str().is_some_and(|text| {
        text.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
            && text.len() > PREFIX.len()
    });
    if !is_pipe {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "there are no Unix sockets on Windows; give the name of a pipe, such as \
                 {PREFIX}rookery, or a host and a port"
            ),
        ));
    }
    let wide: Vec<u16> = name.as_os_str().encode_wide().chain([0]).collect();
    // SAFETY: the name ends with a zero, and the attributes are valid during the call.
    let handle = PipePermissions::new()?.apply(|attributes| unsafe {
        CreateNamedPipeW(
            wide.as_ptr(),
            PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
            PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS,
            PIPE_UNLIMITED_INSTANCES,
            BUFFER_BYTES,
            BUFFER_BYTES,
            0,
            attributes.cast(),
        )
    });
    if handle == INVALID_HANDLE_VALUE {
        let error = io::Error::last_os_error();
        // The first instance is refused if there is another one.
        let is_used = error.raw_os_error() == Some(number(ERROR_ACCESS_DENIED));
        return Err(if is_used { io::ErrorKind::AddrInUse.into() } else { error });
    }
    // SAFETY: the call has just created the handle, so nothing else owns it.
    let first = unsafe { OwnedHandle::from_raw_handle(handle) };
    let next = Mutex::new(Instance::Unregistered(first));
    let file = SocketFile { name: name.to_owned() };
    Ok((LocalListener { name: name.to_owned(), next }, file))
}

impl LocalListener {
    /// Fails, because the instances of a pipe belong to one listener.
    pub(crate) fn try_clone(&self) -> io::Result<LocalListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Does nothing, because the async runtime never blocks on a pipe.
    pub(crate) fn set_nonblocking(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    /// Waits for the next client. Must be called inside the async runtime in which the client is
    /// served.
    ///
    /// # Cancel safety
    /// No client is lost if the future is dropped.
    pub(crate) async fn accept(&self) -> io::Result<AcceptedLocal> {
        // The instance is put back if the future is dropped while no client has connected.
        let mut waiting = Waiting { listener: self, instance: Some(self.take()?) };
        let connected = waiting.instance.as_ref().expect("just stored").connect().await;
        let instance = waiting.instance.take().expect("stored until here");
        *self.next() = match self.create() {
            Ok(next) => Instance::Registered(next),
            // The next call tries again.
            Err(_) => Instance::Missing,
        };
        // A client may have connected and disconnected before.
        connected.map(|()| AcceptedLocal(instance))
    }

    /// Removes the instance for the next client from this value, and registers it with the async
    /// runtime.
    ///
    /// # Errors
    /// Fails with `ERROR_PIPE_BUSY` if there is no instance, so that the caller pauses.
    fn take(&self) -> io::Result<NamedPipeServer> {
        let instance = match std::mem::replace(&mut *self.next(), Instance::Missing) {
            Instance::Registered(instance) => Ok(instance),
            Instance::Unregistered(handle) => {
                // SAFETY: the handle is that of a pipe that was created for overlapped input and
                // output, and this call gives up its ownership.
                unsafe { NamedPipeServer::from_raw_handle(handle.into_raw_handle()) }
            }
            Instance::Missing => self.create(),
        };
        instance.map_err(|_| io::Error::from_raw_os_error(number(ERROR_PIPE_BUSY)))
    }

    /// Creates a further instance of the pipe.
    fn create(&self) -> io::Result<NamedPipeServer> {
        // SAFETY: the attributes are valid during the call.
        PipePermissions::new()?.apply(|attributes| unsafe {
            ServerOptions::new()
                .reject_remote_clients(true)
                .create_with_security_attributes_raw(&self.name, attributes)
        })
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Instance> {
        // A panic leaves the value consistent, because each change is complete.
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An instance whose client has not connected yet. It is given back to its listener when this value
/// is dropped.
struct Waiting<'a> {
    listener: &'a LocalListener,
    instance: Option<NamedPipeServer>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(instance) = self.instance.take() {
            *self.listener.next() = Instance::Registered(instance);
        }
    }
}

/// Returns the name of the pipe as a path.
pub(crate) fn path_of(listener: &LocalListener) -> io::Result<Option<PathBuf>> {
    Ok(Some(listener.name.clone()))
}

/// A connection to a named pipe that a listener has accepted and that is not served yet.
#[derive(Debug)]
pub(crate) struct AcceptedLocal(NamedPipeServer);

impl AcceptedLocal {
    /// Returns the stream of bytes of the connection, which the async runtime already knows.
    pub(crate) fn into_stream(self) -> io::Result<(LocalStream, CloseInChild)> {
        let close_in_child = close_in_child(&self.0.as_raw_handle());
        Ok((LocalStream::new(self.0), close_in_child))
    }

    /// Writes `response` without waiting, and closes the connection.
    pub(crate) fn reject(self, response: &[u8]) -> io::Result<()> {
        self.0.try_write(response).map(drop)
    }
}

/// The name of a named pipe, which the system removes with the pipe.
#[derive(Debug)]
pub(crate) struct SocketFile {
    name: PathBuf,
}

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.name
    }

    /// Does nothing, because the name ends with the last handle of the pipe.
    pub(crate) fn remove(&self) {}
}
