//! The addresses of a connection as text, for the `req` of an app.

use std::net::SocketAddr;

use rookery_server::{push_address, push_number};

/// One end of a connection, with its IP address and its port as text. For a Unix socket, the texts
/// are `""` and `"0"`.
#[derive(Debug)]
pub(crate) struct AddressText {
    end: Option<SocketAddr>,
    pub(crate) addr: Vec<u8>,
    pub(crate) port: Vec<u8>,
}

impl Default for AddressText {
    fn default() -> AddressText {
        AddressText { end: None, addr: Vec::new(), port: b"0".to_vec() }
    }
}

impl AddressText {
    /// Sets the end of the connection. Does nothing if it is that of the previous request, as on a
    /// connection that is kept alive.
    pub(crate) fn set(&mut self, end: Option<SocketAddr>) {
        if end == self.end {
            return;
        }
        self.end = end;
        self.addr.clear();
        self.port.clear();
        if let Some(end) = end {
            push_address(end.ip(), &mut self.addr);
        }
        push_number(end.map_or(0, |end| end.port()).into(), &mut self.port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_text() {
        let table = [
            (Some("127.0.0.1:80"), "127.0.0.1", "80"),
            (Some("[::1]:8000"), "::1", "8000"),
            (Some("[::ffff:10.0.0.1]:1"), "10.0.0.1", "1"),
            (Some("100.20.3.255:65535"), "100.20.3.255", "65535"),
            (Some("0.0.0.0:0"), "0.0.0.0", "0"),
            (None, "", "0"),
        ];
        let mut text = AddressText::default();
        for (end, want_addr, want_port) in table.into_iter().rev().flat_map(|row| [row, row]) {
            text.set(end.map(|end| end.parse().unwrap()));
            assert_eq!(
                (text.addr.as_slice(), text.port.as_slice()),
                (want_addr.as_bytes(), want_port.as_bytes())
            );
        }
    }
}
