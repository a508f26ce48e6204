//! HTTP/1.1 as a worker speaks it to us: where the head of a reply ends, and its body (RFC 9112). Bytes in, bytes out; no socket, no clock.
//!
//! Both ends are ours, so what is allowed is less than what the RFC allows: what two readers could read differently is no reply at all.

pub(super) mod chunked_body;
pub(super) mod response_head;

/// A reply is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// A reply as it was read: its status, its lines, its body, and how much there was behind it.
pub type ReadReply = (u16, Vec<(String, Vec<u8>)>, Vec<u8>, usize);

/// Reads a reply that comes in these pieces; `None`: it is not all there. For the fuzzer.
///
/// # Errors
/// It is none.
#[doc(hidden)]
#[expect(clippy::result_unit_err, reason = "nobody but the fuzzer asks")]
pub fn read_reply_for_fuzzer(
    pieces: &[&[u8]],
    asks_for_head: bool,
) -> Result<Option<ReadReply>, ()> {
    let asked = if asks_for_head {
        response_head::RequestForm::Head
    } else {
        response_head::RequestForm::Other
    };
    let (mut read, mut reply, mut framing) = (Vec::new(), None, response_head::Framing::None);
    let mut chunks = chunked_body::Chunks::new();
    let (mut body, mut behind) = (Vec::new(), 0);
    for piece in pieces {
        read.extend_from_slice(piece);
        if reply.is_none() {
            let mut lines = Vec::new();
            let take = |_: response_head::Head, all: &[httparse::Header<'_>]| {
                lines.extend(all.iter().map(|line| (line.name.to_owned(), line.value.to_owned())));
            };
            let Some((head, len)) =
                response_head::read(&read, asked, take).map_err(|Malformed| ())?
            else {
                continue;
            };
            read.drain(..len);
            framing = head.body;
            reply = Some((head.status, lines));
        }
        let (data, used) = match &mut framing {
            response_head::Framing::None => (0, 0),
            response_head::Framing::Length(left) => {
                let data = read.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data as u64;
                (data, data)
            }
            response_head::Framing::Chunks => {
                let decoded = chunks.decode(&mut read).map_err(|Malformed| ())?;
                (decoded.data, decoded.used)
            }
        };
        behind += read.len() - used;
        body.extend_from_slice(&read[..data]);
        read.clear();
    }
    let is_over = match framing {
        response_head::Framing::None | response_head::Framing::Length(0) => true,
        response_head::Framing::Length(_) => false,
        response_head::Framing::Chunks => chunks.is_over(),
    };
    Ok(reply.filter(|_| is_over).map(|(status, lines)| (status, lines, body, behind)))
}
