//! Stores and returns the head of a request: the request line and the headers.

use std::net::SocketAddr;
use std::sync::Arc;

use super::arena_slice::ArenaSlice;
use super::header_names::{
    HeaderLine, KNOWN_HEADERS, PREFIX, StoredHeader, UNKNOWN, known_header, write_cgi,
};
use super::header_sort::sort_and_join;
use super::{Endpoint, Exchange, Version};

impl Exchange {
    /// Stores the request's method, target and HTTP version. The query begins at the first `?` of
    /// `target`.
    pub fn set_request_line(&mut self, method: &[u8], target: &[u8], version: Version) {
        self.method = self.keep(method);
        let at = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        let target = self.keep(target);
        // SAFETY: `target` has just been allocated in this arena.
        let (path, query) = unsafe { target.bytes() }.split_at(at);
        self.path = ArenaSlice::of(path);
        self.query = ArenaSlice::of(query);
        self.version = version;
    }

    /// Adds a header line to the request. `name` must be in lower case.
    /// [`end_head`](Self::end_head) joins the lines that have the same name.
    pub fn push_header(&mut self, name: &[u8], value: &[u8]) {
        let value = self.keep(value);
        let header = if let Some(known) = known_header(name) {
            let table = &KNOWN_HEADERS[usize::from(known)];
            StoredHeader {
                name: ArenaSlice::of(table.name.as_bytes()),
                cgi: ArenaSlice::of(table.cgi.as_bytes()),
                value,
                known,
            }
        } else {
            let cgi = self.arena.alloc_slice_fill(PREFIX.len() + name.len(), 0u8);
            // With a CGI name, a client's `X_User` could be mistaken for the `X-User` of a proxy.
            let has_cgi = write_cgi(name, cgi);
            let cgi = if has_cgi { ArenaSlice::of(cgi) } else { ArenaSlice::EMPTY };
            StoredHeader { name: self.keep(name), cgi, value, known: UNKNOWN }
        };
        self.headers.push(header);
    }

    /// Completes the head of the request: sorts the headers by name and joins lines with the same
    /// name. `remote` and `local` are the addresses of the client and of the server in this
    /// connection, or `None` for a Unix socket. `is_upgrade` is true for the opening handshake of a
    /// WebSocket.
    pub fn end_head(
        &mut self,
        remote: Option<SocketAddr>,
        local: Option<SocketAddr>,
        is_upgrade: bool,
    ) {
        self.remote = Endpoint(remote);
        self.local = Endpoint(local);
        self.is_upgrade = is_upgrade;
        self.backlog = is_upgrade.then(Arc::default);
        // SAFETY: the slices are static or belong to this exchange, whose arena is not reset during
        // the call.
        let name = |header: &StoredHeader| unsafe { header.name.bytes::<'static>() };
        if !self.headers.is_sorted_by(|a, b| name(a) < name(b)) {
            sort_and_join(&mut self.headers, &self.arena);
        }
    }

    /// Returns the HTTP version of the request.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns true if the request is the opening handshake of a WebSocket.
    pub fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }

    /// Returns the request method as the client sent it.
    pub fn method(&self) -> &[u8] {
        // SAFETY: the slice belongs to this exchange, which is borrowed.
        unsafe { self.method.bytes() }
    }

    /// Returns the request target up to its first `?`, without decoding.
    pub fn path(&self) -> &[u8] {
        // SAFETY: the slice belongs to this exchange, which is borrowed.
        unsafe { self.path.bytes() }
    }

    /// Returns the query of the request target, beginning with `?` and without decoding. Returns an
    /// empty slice if there is no query.
    pub fn query(&self) -> &[u8] {
        // SAFETY: the slice belongs to this exchange, which is borrowed.
        unsafe { self.query.bytes() }
    }

    /// Returns the headers of the request, sorted by name. Each name occurs once.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = HeaderLine<'_>> {
        self.headers.iter().map(|header| {
            // SAFETY: the slices are static or belong to this exchange, which is borrowed.
            let (name, cgi, value) =
                unsafe { (header.name.bytes(), header.cgi.bytes(), header.value.bytes()) };
            HeaderLine {
                name,
                cgi,
                value,
                known: (header.known != UNKNOWN).then_some(header.known),
            }
        })
    }

    /// Returns the value of the request header with this name. `name` must be in lower case.
    pub fn header(&self, name: &[u8]) -> Option<&[u8]> {
        self.headers().find(|header| header.name == name).map(|header| header.value)
    }
}
