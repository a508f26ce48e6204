//! The head of a reply.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Response, Status};

use super::Malformed;

/// Bytes of a reply's head, and lines. Both ends are ours; the limit is for an app that sets a header without end.
pub(in crate::pool) const HEAD_BYTES: usize = 256 << 10;
const HEAD_LINES: usize = 1000;

/// Lines that are read without memory of their own: more than most heads have.
const FEW_LINES: usize = 64;

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) struct Head {
    pub(in crate::pool) status: u16,
    pub(in crate::pool) body: Framing,
    /// Whether the connection may be used again.
    pub(in crate::pool) is_kept: bool,
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum Framing {
    /// There is none, whatever the headers say: of HEAD, 204, 304 and 101.
    None,
    /// By its length.
    Length(u64),
    /// By its last chunk.
    Chunks,
}

/// What was asked, where the reply depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum RequestForm {
    /// For a head alone.
    Head,
    /// For a WebSocket.
    Upgrade,
    Other,
}

/// Reads the head at the beginning of `bytes`: what it says, and its length. `None`: it is not all there. Heads of interim replies (RFC
/// 9110, 15.2) in front of it count as part of it. `take` is given what it says and its lines, once it has been found good.
///
/// # Errors
/// It is no head, or larger than it may be, or does not say clearly where its reply ends.
pub(in crate::pool) fn read(
    bytes: &[u8],
    asked: RequestForm,
    mut take: impl FnMut(Head, &[Header<'_>]),
) -> Result<Option<(Head, usize)>, Malformed> {
    let mut few = [const { MaybeUninit::uninit() }; FEW_LINES];
    match read_into(&mut few, bytes, asked, &mut take) {
        Err(httparse::Error::TooManyHeaders) => {
            let mut many = Box::new_uninit_slice(HEAD_LINES);
            read_into(&mut many, bytes, asked, &mut take)
        }
        read => read,
    }
    .map_err(|_| Malformed)
}

fn read_into<'a>(
    lines: &mut [MaybeUninit<Header<'a>>],
    bytes: &'a [u8],
    asked: RequestForm,
    take: &mut impl FnMut(Head, &[Header<'_>]),
) -> Result<Option<(Head, usize)>, httparse::Error> {
    let mut at = 0;
    loop {
        let mut response = Response::new(&mut []);
        let parser = ParserConfig::default();
        at += match parser.parse_response_with_uninit_headers(&mut response, &bytes[at..], lines)? {
            Status::Complete(len) if at + len <= HEAD_BYTES => len,
            Status::Partial if bytes.len() < HEAD_BYTES => return Ok(None),
            _ => return Err(httparse::Error::Token),
        };
        let (Some(status), Some(version)) = (response.code, response.version) else {
            return Ok(None);
        };
        match status {
            100 | 102..=199 => continue,
            101 if asked == RequestForm::Upgrade => {}
            200..=999 => {}
            _ => return Err(httparse::Error::Status),
        }
        let head = head(status, version, asked, response.headers)
            .map_err(|_| httparse::Error::HeaderValue)?;
        take(head, response.headers);
        return Ok(Some((head, at)));
    }
}

fn head(
    status: u16,
    version: u8,
    asked: RequestForm,
    lines: &[Header<'_>],
) -> Result<Head, Malformed> {
    // Without a length what HTTP/1.0 sends ends where its sender does, and nobody could tell that from a worker that has died.
    let mut head = Head { status, body: Framing::None, is_kept: version == 1 && status != 101 };
    let (mut length, mut is_chunked) = (None, false);
    for header in lines {
        if header.name.eq_ignore_ascii_case("content-length") {
            let told = self::length(header.value).ok_or(Malformed)?;
            if length.replace(told).is_some_and(|other| other != told) {
                return Err(Malformed);
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            // Once, and nothing else: no other coding is undone here.
            if is_chunked
                || version == 0
                || !header.value.trim_ascii().eq_ignore_ascii_case(b"chunked")
            {
                return Err(Malformed);
            }
            is_chunked = true;
        } else if header.name.eq_ignore_ascii_case("connection") {
            let mut words = header.value.split(|byte| *byte == b',');
            head.is_kept &= !words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"));
        }
    }
    head.body = match (length, is_chunked) {
        (Some(_), true) => return Err(Malformed),
        _ if asked == RequestForm::Head || matches!(status, 101 | 204 | 304) => Framing::None,
        (Some(length), false) => Framing::Length(length),
        (None, true) => Framing::Chunks,
        (None, false) => return Err(Malformed),
    };
    Ok(head)
}

/// Digits alone, of a number that there is.
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

    fn of(bytes: &[u8], asked: RequestForm) -> Result<Option<(Head, usize)>, Malformed> {
        read(bytes, asked, |_, _| {})
    }

    fn good(head: &str, asked: RequestForm) -> Head {
        let (read, len) = of(head.as_bytes(), asked).unwrap().unwrap();
        assert_eq!(len, head.len());
        read
    }

    #[test]
    fn a_head_says_where_its_reply_ends() {
        let length = |length| Framing::Length(length);
        for (rest, asked, status, body, is_kept) in [
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
                Framing::Chunks,
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
            let head = good(&format!("HTTP/1.1 {rest}\r\n"), asked);
            assert_eq!(head, Head { status, body, is_kept }, "{rest:?}");
        }
        let old = good("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\n", RequestForm::Other);
        assert_eq!((old.body, old.is_kept), (length(5), false));
    }

    #[test]
    fn what_two_could_read_differently_is_none() {
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
    fn interim_replies_are_passed_over_and_every_beginning_is_too_little() {
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
                let head = Head { status: 200, body: Framing::Length(2), is_kept: true };
                assert_eq!(read, Ok(Some((head, end))));
                assert_eq!(lines[0], ("x".to_owned(), b"y".to_vec()));
                assert_eq!(lines.len(), 2);
            }
        }
    }

    #[test]
    fn a_head_may_be_so_large_and_no_larger() {
        let with = |len: usize| {
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: ";
            format!("{head}{}\r\n\r\n", "x".repeat(len - head.len() - 4))
        };
        assert!(good(&with(HEAD_BYTES), RequestForm::Other).is_kept);
        assert_eq!(of(with(HEAD_BYTES + 1).as_bytes(), RequestForm::Other), Err(Malformed));
        // One that has no end is not waited for.
        let begun = with(HEAD_BYTES + 5);
        assert_eq!(of(&begun.as_bytes()[..HEAD_BYTES - 1], RequestForm::Other), Ok(None));
        assert_eq!(of(&begun.as_bytes()[..HEAD_BYTES], RequestForm::Other), Err(Malformed));
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(HEAD_BYTES / 25 + 1);
        assert_eq!(of(interim.as_bytes(), RequestForm::Other), Err(Malformed));

        let lines = |lines: usize| format!("HTTP/1.1 204 No\r\n{}\r\n", "x: y\r\n".repeat(lines));
        assert!(good(&lines(HEAD_LINES), RequestForm::Other).is_kept);
        assert_eq!(of(lines(HEAD_LINES + 1).as_bytes(), RequestForm::Other), Err(Malformed));
    }
}
