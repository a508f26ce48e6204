//! The framing of the HTTP/1.1 responses that workers send (RFC 9112): the parser of the head and
//! the decoder of the body.
//!
//! The parser is stricter than the RFC, because workers always run Rookery. It rejects all messages
//! that two parsers could interpret differently.

pub(in crate::pool) mod chunked_body;
pub(in crate::pool) mod response_head;

/// The error for bytes from a worker that are not valid HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) struct Malformed;

/// A parsed response, for the fuzzer: the status, the header lines, the body, and the number of
/// unused bytes after the body.
pub type ParsedResponse = (u16, Vec<(String, Vec<u8>)>, Vec<u8>, usize);

/// Parses an HTTP response that arrives in the given pieces, for the fuzzer. Returns `None` if the
/// response is incomplete.
///
/// # Errors
/// Returns an error if the response is malformed.
#[doc(hidden)]
#[expect(clippy::result_unit_err, reason = "only the fuzzer calls this")]
pub fn parse_response_for_fuzzer(
    pieces: &[&[u8]],
    is_head_request: bool,
) -> Result<Option<ParsedResponse>, ()> {
    let form = if is_head_request {
        response_head::RequestForm::Head
    } else {
        response_head::RequestForm::Other
    };
    let (mut read, mut response, mut framing) = (Vec::new(), None, response_head::Framing::None);
    let mut decoder = chunked_body::ChunkDecoder::new();
    let (mut body, mut bytes_after) = (Vec::new(), 0);
    for piece in pieces {
        read.extend_from_slice(piece);
        if response.is_none() {
            let mut lines = Vec::new();
            let take = |_: response_head::Head, all: &[httparse::Header<'_>]| {
                lines.extend(all.iter().map(|line| (line.name.to_owned(), line.value.to_owned())));
            };
            let Some((head, len)) =
                response_head::read(&read, form, take).map_err(|Malformed| ())?
            else {
                continue;
            };
            read.drain(..len);
            framing = head.body;
            response = Some((head.status, lines));
        }
        let (data, used) = match &mut framing {
            response_head::Framing::None => (0, 0),
            response_head::Framing::Length(left) => {
                let data = read.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data as u64;
                (data, data)
            }
            response_head::Framing::Chunked => {
                let decoded = decoder.decode(&mut read).map_err(|Malformed| ())?;
                (decoded.data, decoded.used)
            }
        };
        bytes_after += read.len() - used;
        body.extend_from_slice(&read[..data]);
        read.clear();
    }
    let is_complete = match framing {
        response_head::Framing::None | response_head::Framing::Length(0) => true,
        response_head::Framing::Length(_) => false,
        response_head::Framing::Chunked => decoder.is_complete(),
    };
    Ok(response.filter(|_| is_complete).map(|(status, lines)| (status, lines, body, bytes_after)))
}
