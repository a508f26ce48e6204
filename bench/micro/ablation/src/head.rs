//! The head of a request, stored in an exchange.

use std::hint::black_box;

use rookery_exchange::{Exchange, Version};

use rookery_bench_meter::{Figures, repeat};

const TARGET: &[u8] = b"/session/4f2a/dataobj/plot?w=640&h=480&nonce=9b3c";
/// The header fields that a browser sends to a Shiny app. Two of the names are in no table.
const HEADERS: [(&[u8], &[u8]); 10] = [
    (b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    (b"accept-encoding", b"gzip, deflate, br"),
    (b"accept-language", b"en-US,en;q=0.5"),
    (b"connection", b"keep-alive"),
    (b"cookie", b"session=0123456789abcdef0123456789abcdef; theme=dark"),
    (b"host", b"127.0.0.1:8000"),
    (b"referer", b"http://127.0.0.1:8000/"),
    (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    (b"x-shiny-session", b"4f2a9b3c"),
    (b"x-trace", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00"),
];

fn fill(exchange: &mut Exchange, id: u64) -> usize {
    exchange.begin(id, 0, 0);
    exchange.set_request_line(black_box(b"GET"), black_box(TARGET), Version::Http11);
    for (name, value) in black_box(HEADERS) {
        exchange.push_header(name, value);
    }
    exchange.end_head(None, None, false);
    let headers: usize =
        exchange.headers().map(|header| header.cgi.len() + header.value.len()).sum();
    exchange.method().len() + exchange.path().len() + exchange.query().len() + headers
}

/// Fills an exchange with the head of a request, reads it, and recycles the exchange.
pub fn run(n: u64) -> Figures {
    let mut exchange = Exchange::new();
    let mut id = 0;
    repeat(n, || {
        id += 1;
        fill(&mut exchange, id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_the_head_is_in_the_exchange() {
        let values: usize =
            HEADERS.iter().map(|(name, value)| "HTTP_".len() + name.len() + value.len()).sum();
        assert_eq!(fill(&mut Exchange::new(), 1), "GET".len() + TARGET.len() + values);
    }
}
