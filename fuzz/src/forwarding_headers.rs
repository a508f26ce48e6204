//! The fuzz target of the headers in which proxies name a request's client.

use std::net::SocketAddr;

use rookery_server::{forwarded, x_forwarded_for};

/// A function that reads the addresses in a line.
type Read = fn(&[u8]) -> Vec<Option<SocketAddr>>;

/// Checks that nothing that a client sends changes how the addresses that proxies append to it are
/// read, and that each address that is found is found again in the form that RFC 7239 requires.
pub fn forwarding_headers(data: &[u8]) {
    let proxy: SocketAddr = "192.0.2.1:0".parse().unwrap();
    let read: [Read; 2] =
        [|line| x_forwarded_for(line).collect(), |line| forwarded(line).collect()];
    for (read, prefix) in read.into_iter().zip(["", "for="]) {
        let addresses = read(data);
        assert!(addresses.len() <= data.split(|byte| *byte == b',').count());
        let appended = [data, b", ", prefix.as_bytes(), b"192.0.2.1"].concat();
        let mut expected = vec![Some(proxy)];
        expected.extend(&addresses);
        assert_eq!(read(&appended), expected, "{data:?}");
        for address in addresses.into_iter().flatten() {
            let node = format!("{prefix}\"{address}\"");
            assert_eq!(read(node.as_bytes()), [Some(address)], "{data:?}");
        }
    }
}
