//! The parser for the head of a worker's HTTP response.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Response, Status};

use super::Malformed;

/// The maximum size in bytes of the head of a worker's response.
pub(in crate::pool) const MAX_HEAD_SIZE: usize = 256 << 10;

/// The maximum number of header lines in the head of a worker's response.
const MAX_LINES: usize = 1000;

/// The maximum number of header lines of a response that are parsed without allocating memory. A
/// response with more lines is parsed again with a larger table.
const FEW_LINES: usize = 64;

/// The information in a response's head that the pool needs to read the body and to reuse the
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) struct Head {
    pub(in crate::pool) status: u16,
    pub(in crate::pool) body: Framing,
    /// Whether the connection to the worker can be used for another request after this response.
    pub(in crate::pool) is_reusable: bool,
}

/// The rule that determines where a response's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum Framing {
    /// The response has no body, whatever its headers contain. This applies to responses to HEAD
    /// requests and to the statuses 101, 204 and 304.
    None,
    /// The response's body has this length in bytes.
    Length(u64),
    /// The response's body has the chunked transfer coding and ends with the last chunk.
    Chunked,
}

/// The kind of a request, as far as it affects the framing of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum RequestForm {
    /// A HEAD request.
    Head,
    /// The opening handshake of a WebSocket.
    Upgrade,
    Other,
}

/// Parses the response head at the beginning of `bytes`, and calls `take` with the head and its
/// header lines. Returns the head and the number of bytes before the body, or `None` if the head is
/// incomplete. Interim responses (RFC 9110, 15.2) are skipped, and their bytes are part of that
/// number.
///
/// # Errors
/// Returns an error if the head is malformed or exceeds a limit, or if the framing of its body is
/// ambiguous.
pub(in crate::pool) fn read(
    bytes: &[u8],
    form: RequestForm,
    mut take: impl FnMut(Head, &[Header<'_>]),
) -> Result<Option<(Head, usize)>, Malformed> {
    let mut few = [const { MaybeUninit::uninit() }; FEW_LINES];
    match read_into(&mut few, bytes, form, &mut take) {
        Err(httparse::Error::TooManyHeaders) => {
            let mut many = Box::new_uninit_slice(MAX_LINES);
            read_into(&mut many, bytes, form, &mut take)
        }
        read => read,
    }
    .map_err(|_| Malformed)
}

fn read_into<'a>(
    lines: &mut [MaybeUninit<Header<'a>>],
    bytes: &'a [u8],
    form: RequestForm,
    take: &mut impl FnMut(Head, &[Header<'_>]),
) -> Result<Option<(Head, usize)>, httparse::Error> {
    let mut at = 0;
    loop {
        let mut response = Response::new(&mut []);
        let parser = ParserConfig::default();
        at += match parser.parse_response_with_uninit_headers(&mut response, &bytes[at..], lines)? {
            Status::Complete(len) if at + len <= MAX_HEAD_SIZE => len,
            Status::Partial if bytes.len() < MAX_HEAD_SIZE => return Ok(None),
            _ => return Err(httparse::Error::Token),
        };
        let (Some(status), Some(version)) = (response.code, response.version) else {
            return Ok(None);
        };
        match status {
            100 | 102..=199 => continue,
            101 if form == RequestForm::Upgrade => {}
            200..=999 => {}
            _ => return Err(httparse::Error::Status),
        }
        let head = head(status, version, form, response.headers)
            .map_err(|_| httparse::Error::HeaderValue)?;
        take(head, response.headers);
        return Ok(Some((head, at)));
    }
}

fn head(
    status: u16,
    version: u8,
    form: RequestForm,
    lines: &[Header<'_>],
) -> Result<Head, Malformed> {
    // An HTTP/1.0 body without a length ends with the connection. Such an end could not be
    // distinguished from the death of the worker, so it is rejected below.
    let mut head = Head { status, body: Framing::None, is_reusable: version == 1 && status != 101 };
    let (mut length, mut is_chunked) = (None, false);
    for header in lines {
        if header.name.eq_ignore_ascii_case("content-length") {
            let value = self::length(header.value).ok_or(Malformed)?;
            if length.replace(value).is_some_and(|other| other != value) {
                return Err(Malformed);
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            // The chunked coding is the only transfer coding that is supported.
            if is_chunked
                || version == 0
                || !header.value.trim_ascii().eq_ignore_ascii_case(b"chunked")
            {
                return Err(Malformed);
            }
            is_chunked = true;
        } else if header.name.eq_ignore_ascii_case("connection") {
            let mut words = header.value.split(|byte| *byte == b',');
            head.is_reusable &= !words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"));
        }
    }
    head.body = match (length, is_chunked) {
        (Some(_), true) => return Err(Malformed),
        _ if form == RequestForm::Head || matches!(status, 101 | 204 | 304) => Framing::None,
        (Some(length), false) => Framing::Length(length),
        (None, true) => Framing::Chunked,
        (None, false) => return Err(Malformed),
    };
    Ok(head)
}

/// Parses the value of a Content-Length header. Returns `None` unless it consists only of digits.
fn length(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8], form: RequestForm) -> Result<Option<(Head, usize)>, Malformed> {
        read(bytes, form, |_, _| {})
    }

    fn good(head: &str, form: RequestForm) -> Head {
        let (read, len) = of(head.as_bytes(), form).unwrap().unwrap();
        assert_eq!(len, head.len());
        read
    }

    #[test]
    fn finds_the_framing_of_a_body() {
        let length = |length| Framing::Length(length);
        for (rest, form, status, body, is_reusable) in [
            ("200 OK\r\ncontent-length: 5\r\n", RequestForm::Other, 200, length(5), true),
            ("200 \r\nContent-Length: 0\r\n", RequestForm::Upgrade, 200, length(0), true),
            (
                "404 Not Found\r\ncontent-length:7\r\ncontent-length: 7\r\n",
                RequestForm::Other,
                404,
                length(7),
                true,
            ),
            (
                "200 OK\r\ntransfer-encoding: Chunked\r\n",
                RequestForm::Other,
                200,
                Framing::Chunked,
                true,
            ),
            ("200 OK\r\ncontent-length: 5\r\n", RequestForm::Head, 200, Framing::None, true),
            ("200 OK\r\n", RequestForm::Head, 200, Framing::None, true),
            ("204 No Content\r\n", RequestForm::Other, 204, Framing::None, true),
            (
                "304 Not Modified\r\ncontent-length: 5\r\n",
                RequestForm::Other,
                304,
                Framing::None,
                true,
            ),
            (
                "101 Switching Protocols\r\nupgrade: websocket\r\n",
                RequestForm::Upgrade,
                101,
                Framing::None,
                false,
            ),
            (
                "200 OK\r\ncontent-length: 1\r\nconnection: Close\r\n",
                RequestForm::Other,
                200,
                length(1),
                false,
            ),
            (
                "200 OK\r\ncontent-length: 1\r\nconnection: a, close\r\n",
                RequestForm::Other,
                200,
                length(1),
                false,
            ),
            (
                "200 OK\r\ncontent-length: 1\r\nconnection: closed\r\n",
                RequestForm::Other,
                200,
                length(1),
                true,
            ),
        ] {
            let head = good(&format!("HTTP/1.1 {rest}\r\n"), form);
            assert_eq!(head, Head { status, body, is_reusable }, "{rest:?}");
        }
        let old = good("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\n", RequestForm::Other);
        assert_eq!((old.body, old.is_reusable), (length(5), false));
    }

    #[test]
    fn rejects_what_parsers_could_read_differently() {
        for rest in [
            "200 OK\r\n",
            "200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n",
            "200 OK\r\ncontent-length: 5, 5\r\n",
            "200 OK\r\ncontent-length: +5\r\n",
            "200 OK\r\ncontent-length: 0x5\r\n",
            "200 OK\r\ncontent-length:\r\n",
            "200 OK\r\ncontent-length: 18446744073709551616\r\n",
            "200 OK\r\ncontent-length : 5\r\n",
            "200 OK\r\n content-length: 5\r\n",
            "200 OK\r\nx: y\r\n content-length: 5\r\n",
            "200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n",
            "204 No Content\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n",
            "200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "200 OK\r\ntransfer-encoding: gzip, chunked\r\n",
            "200 OK\r\ntransfer-encoding: identity\r\n",
            "101 Switching Protocols\r\nupgrade: websocket\r\n",
            "099 Nothing\r\ncontent-length: 5\r\n",
            "20 OK\r\ncontent-length: 5\r\n",
            "OK\r\ncontent-length: 5\r\n",
        ] {
            let head = format!("HTTP/1.1 {rest}\r\n");
            assert_eq!(of(head.as_bytes(), RequestForm::Other), Err(Malformed), "{rest:?}");
        }
        for head in [
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/2.0 200 OK\r\ncontent-length: 5\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(of(head.as_bytes(), RequestForm::Other), Err(Malformed), "{head:?}");
        }
    }

    #[test]
    fn skips_interim_responses_and_waits_for_the_whole_head() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
        let whole = format!("{interim}HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 2\r\n\r\nab");
        let end = whole.len() - 2;
        for at in 0..whole.len() {
            let mut lines = Vec::new();
            let read = read(&whole.as_bytes()[..at], RequestForm::Other, |_, all| {
                lines.extend(all.iter().map(|line| (line.name.to_owned(), line.value.to_owned())));
            });
            if at < end {
                assert_eq!((read, lines.len()), (Ok(None), 0), "{at}");
            } else {
                let head = Head { status: 200, body: Framing::Length(2), is_reusable: true };
                assert_eq!(read, Ok(Some((head, end))));
                assert_eq!(lines[0], ("x".to_owned(), b"y".to_vec()));
                assert_eq!(lines.len(), 2);
            }
        }
    }

    #[test]
    fn limits_the_size_and_the_lines_of_a_head() {
        let with = |len: usize| {
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: ";
            format!("{head}{}\r\n\r\n", "x".repeat(len - head.len() - 4))
        };
        assert!(good(&with(MAX_HEAD_SIZE), RequestForm::Other).is_reusable);
        assert_eq!(of(with(MAX_HEAD_SIZE + 1).as_bytes(), RequestForm::Other), Err(Malformed));
        // A head that exceeds the limit is rejected before its end has arrived.
        let begun = with(MAX_HEAD_SIZE + 5);
        assert_eq!(of(&begun.as_bytes()[..MAX_HEAD_SIZE - 1], RequestForm::Other), Ok(None));
        assert_eq!(of(&begun.as_bytes()[..MAX_HEAD_SIZE], RequestForm::Other), Err(Malformed));
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(MAX_HEAD_SIZE / 25 + 1);
        assert_eq!(of(interim.as_bytes(), RequestForm::Other), Err(Malformed));

        let lines = |lines: usize| format!("HTTP/1.1 204 No\r\n{}\r\n", "x: y\r\n".repeat(lines));
        assert!(good(&lines(MAX_LINES), RequestForm::Other).is_reusable);
        assert_eq!(of(lines(MAX_LINES + 1).as_bytes(), RequestForm::Other), Err(Malformed));
    }
}
