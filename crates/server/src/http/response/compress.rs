//! The gzip compression of responses to clients that accept gzip. As in httpuv, the level is 6, and
//! even short responses are compressed. Unlike httpuv, the server parses `Accept-Encoding` as RFC
//! 9110 (12.5.3) requires.
//!
//! Two kinds of responses are not compressed:
//! - responses whose content is already compressed
//! - responses whose framing gzip would break: those without a body, parts of files, and responses
//!   to HTTP/1.0 clients

use flate2::{Compress, Compression, FlushCompress, Status};
use http::header::{ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use smallvec::SmallVec;

/// The properties of a response that determine whether it is compressed, besides the client's
/// `Accept-Encoding`.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The HTTP method of the request.
    pub method: &'a Method,
    /// The HTTP version of the request. Responses to HTTP/1.0 clients are not compressed, because
    /// HTTP/1.0 has no chunked coding and the compressed length is unknown in advance.
    pub version: Version,
    /// The status code of the response.
    pub status: StatusCode,
    /// The headers of the response. An application can prevent compression by setting any
    /// `Content-Encoding`.
    pub headers: &'a HeaderMap,
    /// The length of the response body in bytes, or `None` if the body is still being produced.
    pub len: Option<u64>,
}

/// Returns true if the server should compress `response` with gzip. `accept_encoding` is the value
/// of this header in the request.
pub fn negotiate(accept_encoding: Option<&[u8]>, response: &Candidate<'_>) -> bool {
    let Some(accept_encoding) = accept_encoding else { return false };
    response.method != Method::HEAD
        && response.version >= Version::HTTP_11
        && is_compressible_response(response.status, response.headers, response.len)
        && accepts_gzip(accept_encoding)
}

/// Returns true if the server compresses a response for clients that accept gzip.
pub(crate) fn is_compressible_response(
    status: StatusCode,
    headers: &HeaderMap,
    len: Option<u64>,
) -> bool {
    let has_whole_body = !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT
                | StatusCode::RESET_CONTENT
                | StatusCode::NOT_MODIFIED
                | StatusCode::PARTIAL_CONTENT
        )
        && len.is_none_or(|len| len >= MIN_BYTES);
    has_whole_body
        && !headers.contains_key(CONTENT_ENCODING)
        && headers.get(CONTENT_TYPE).is_none_or(|kind| is_compressible(kind.as_bytes()))
}

/// The minimum length in bytes of a response body that is compressed. Bodies of fewer than 20 bytes
/// grow when they are compressed. They are compressed nevertheless, because httpuv does so, and
/// tests of applications rely on the `Content-Encoding`.
const MIN_BYTES: u64 = 1;

/// Adapts the headers of a response whose body is compressed. Sets `Content-Encoding`, removes
/// `Content-Length` and `Accept-Ranges`, makes a strong `ETag` weak, and adds `Accept-Encoding` to
/// `Vary`.
pub fn mark(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
    headers.remove(ACCEPT_RANGES);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let covers_encoding = |value: &HeaderValue| {
        let mut names = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"))
    };
    if !headers.get_all(VARY).iter().any(covers_encoding) {
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    if let Some(etag) = headers.get_mut(ETAG) {
        if etag.as_bytes().starts_with(b"\"") {
            let weak = [b"W/", etag.as_bytes()].concat();
            *etag = HeaderValue::from_bytes(&weak)
                .expect("a valid value stays valid with `W/` in front");
        }
    }
}

/// A compressor for successive gzip streams (RFC 1952), fed chunk by chunk. It uses about 370 KiB
/// of memory, which it keeps for the next stream.
///
/// ```
/// let mut gzip = rookery_server::compress::Gzip::new();
/// let mut out = Vec::new();
/// gzip.push(b"one piece ", &mut out);
/// gzip.push(b"and another", &mut out);
/// gzip.finish(&mut out);
/// assert_eq!(out[..2], [0x1F, 0x8B]);
/// ```
#[derive(Debug)]
pub struct Gzip {
    deflate: Compress,
}

impl Gzip {
    /// Creates a compressor for a new gzip stream.
    pub fn new() -> Gzip {
        Gzip { deflate: Compress::new_gzip(Compression::new(LEVEL), WINDOW_BITS) }
    }

    /// Compresses `input` and appends the output that is available to `out`. Some output may stay
    /// in the compressor.
    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
        self.run(input, out, FlushCompress::None);
    }

    /// Appends all output that is still in the compressor to `out`, so that the client can decode
    /// everything that has been pushed. Used for response bodies that are produced gradually. A
    /// flush costs five bytes and makes the compression slightly worse.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        self.run(&[], out, FlushCompress::Sync);
    }

    /// Ends the gzip stream and appends its last bytes to `out`. The compressor can then be used
    /// for the next stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.run(&[], out, FlushCompress::Finish);
        self.deflate.reset();
    }

    /// Compresses a whole response body into one gzip stream and appends it to `out`.
    pub fn compress(&mut self, body: &[u8], out: &mut Vec<u8>) {
        self.run(body, out, FlushCompress::Finish);
        self.deflate.reset();
    }

    fn run(&mut self, mut input: &[u8], out: &mut Vec<u8>, flush: FlushCompress) {
        loop {
            if out.capacity() - out.len() < MIN_SPARE {
                out.reserve(GROWTH);
            }
            let before = self.deflate.total_in();
            // Fails only for a stream that is not initialised or already finished, and `finish`
            // resets it.
            let status = self
                .deflate
                .compress_vec(input, out, flush)
                .expect("the stream is initialised and not finished");
            input = &input[(self.deflate.total_in() - before) as usize..];
            let has_spare = out.len() < out.capacity();
            let is_done = match flush {
                FlushCompress::Finish => status == Status::StreamEnd,
                _ => input.is_empty() && has_spare,
            };
            if is_done {
                return;
            }
        }
    }
}

impl Default for Gzip {
    fn default() -> Gzip {
        Gzip::new()
    }
}

/// The gzip compression level, which is that of httpuv.
const LEVEL: u32 = 6;

/// The window size of the compressor as a power of two: 32 KiB, the largest size, which every gzip
/// decoder supports.
const WINDOW_BITS: u8 = 15;

/// The number of bytes by which the compressor's output buffer grows.
const GROWTH: usize = 16 << 10;

/// The minimum free space in the compressor's output buffer, in bytes. With less space, zlib could
/// write little more than the header of a block.
const MIN_SPARE: usize = 64;

/// Returns true if the value of `Accept-Encoding` accepts gzip and does not prefer an uncompressed
/// response (RFC 9110, 12.5.3).
fn accepts_gzip(value: &[u8]) -> bool {
    let (mut gzip, mut any, mut identity) = (None, None, None);
    for item in value.split(|byte| *byte == b',') {
        let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let coding = parts.next().unwrap_or_default();
        let quality = parts.find_map(weight).unwrap_or(1000);
        let slot = if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip")
        {
            &mut gzip
        } else if coding == b"*" {
            &mut any
        } else if coding.eq_ignore_ascii_case(b"identity") {
            &mut identity
        } else {
            continue;
        };
        *slot = (*slot).max(Some(quality));
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

/// Parses the weight of a content coding in `Accept-Encoding`, such as `q=0.5`, into thousandths
/// (RFC 9110, 12.4.2). Returns 0 for an invalid weight, so that the coding is not used. Returns
/// `None` if the parameter is not a weight.
fn weight(parameter: &[u8]) -> Option<u16> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let (whole, decimals) = match value {
        [whole, b'.', decimals @ ..]
            if decimals.len() <= 3 && decimals.iter().all(u8::is_ascii_digit) =>
        {
            (whole, decimals)
        }
        [whole] => (whole, &[][..]),
        _ => return Some(0),
    };
    let digit = |place: usize| decimals.get(place).map_or(0, |digit| u16::from(digit - b'0'));
    let fraction = digit(0) * 100 + digit(1) * 10 + digit(2);
    Some(match whole {
        b'0' => fraction,
        b'1' if fraction == 0 => 1000,
        _ => 0,
    })
}

/// Returns true if response bodies of this content type are likely to shrink when compressed, or if
/// the type is unknown. Returns false for `application/octet-stream`, because a compressed download
/// cannot be resumed, and for event streams, because every event would need a flush.
fn is_compressible(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let mut kind: SmallVec<[u8; 64]> = SmallVec::from_slice(kind);
    kind.make_ascii_lowercase();
    let Some(slash) = kind.iter().position(|byte| *byte == b'/') else { return true };
    let (group, name) = (&kind[..slash], &kind[slash + 1..]);
    match group {
        b"audio" | b"video" => false,
        b"image" => COMPRESSIBLE_IMAGES.contains(&name),
        b"font" => !matches!(name, b"woff" | b"woff2"),
        b"text" => name != b"event-stream",
        b"application" => {
            !COMPRESSED_APPLICATIONS.contains(&name)
                && !name.starts_with(b"vnd.openxmlformats-officedocument.")
                && !name.starts_with(b"vnd.oasis.opendocument.")
                && !name.ends_with(b"+zip")
                && !name.ends_with(b"+gzip")
        }
        _ => true,
    }
}

const COMPRESSIBLE_IMAGES: &[&[u8]] =
    &[b"bmp", b"svg+xml", b"vnd.microsoft.icon", b"x-icon", b"x-ms-bmp"];

const COMPRESSED_APPLICATIONS: &[&[u8]] = &[
    b"font-woff",
    b"font-woff2",
    b"gzip",
    b"java-archive",
    b"octet-stream",
    b"pdf",
    b"vnd.apache.parquet",
    b"vnd.rar",
    b"x-7z-compressed",
    b"x-bzip",
    b"x-bzip2",
    b"x-compress",
    b"x-font-woff",
    b"x-gzip",
    b"x-rar-compressed",
    b"x-xz",
    b"zip",
    b"zstd",
];

#[cfg(test)]
mod tests;
