//! The head of a request: into the exchange's arena, or with a malloc per field.

use std::hint::black_box;

use rookery_exchange::{Exchange, KNOWN_HEADERS, Version, known_header};

use crate::meter::{Case, repeat};

const TARGET: &[u8] = b"/session/4f2a/dataobj/plot?w=640&h=480&nonce=9b3c";
/// What a browser sends to a Shiny app, two names of which are in no table.
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

/// A request as it is where every field is a string of its own.
#[derive(Default)]
struct Strings {
    method: Vec<u8>,
    path: Vec<u8>,
    query: Vec<u8>,
    headers: Vec<Header>,
}

/// Name, CGI name and value.
struct Header {
    _name: Vec<u8>,
    cgi: Vec<u8>,
    value: Vec<u8>,
    _known: Option<u8>,
}

impl Strings {
    fn fill(&mut self) {
        let at = TARGET.iter().position(|byte| *byte == b'?').unwrap_or(TARGET.len());
        self.method = black_box(b"GET").to_vec();
        self.path = black_box(&TARGET[..at]).to_vec();
        self.query = black_box(&TARGET[at..]).to_vec();
        self.headers.reserve(HEADERS.len());
        for (name, value) in black_box(HEADERS) {
            let known = known_header(name);
            let cgi = match known {
                Some(index) => KNOWN_HEADERS[usize::from(index)].cgi.as_bytes().to_vec(),
                None => {
                    let mut cgi = Vec::with_capacity(5 + name.len());
                    cgi.extend_from_slice(b"HTTP_");
                    cgi.extend(
                        name.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }),
                    );
                    cgi
                }
            };
            self.headers.push(Header { _name: name.to_vec(), cgi, value: value.to_vec(), _known: known });
        }
    }

    fn length(&self) -> usize {
        let headers: usize = self.headers.iter().map(|header| header.cgi.len() + header.value.len()).sum();
        self.method.len() + self.path.len() + self.query.len() + headers
    }
}

fn fill(exchange: &mut Exchange, id: u64) -> usize {
    exchange.begin(id, 0, 0);
    exchange.set_request_line(black_box(b"GET"), black_box(TARGET), Version::Http11);
    for (name, value) in black_box(HEADERS) {
        exchange.push_header(name, value);
    }
    exchange.end_head(None, None, false);
    let headers: usize = exchange.headers().map(|header| header.cgi.len() + header.value.len()).sum();
    exchange.method().len() + exchange.path().len() + exchange.query().len() + headers
}

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            scenario: "head",
            peer: "ours",
            what: "an exchange from its pool, filled into its arena",
            run: |n| {
                let mut exchange = Exchange::new();
                let mut id = 0;
                repeat(n, || {
                    id += 1;
                    fill(&mut exchange, id)
                })
            },
        },
        Case {
            scenario: "head",
            peer: "malloc",
            what: "a string of its own for each field, freed after the request",
            run: |n| {
                repeat(n, || {
                    let mut strings = Strings::default();
                    strings.fill();
                    strings.length()
                })
            },
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hold_the_same() {
        let mut strings = Strings::default();
        strings.fill();
        assert_eq!(fill(&mut Exchange::new(), 1), strings.length());
    }
}
