//! The worker header, by which a supervisor passes information about a request on to a worker: the
//! ticket, the request's id, the client's addresses and the client's certificate.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;

use crate::ticket::Ticket;

/// The name of the worker header, which contains the supervisor's information about a request. A
/// supervisor sets this header on every request that it passes on to a worker, and removes any
/// header of this name that a client sent. The value is therefore trustworthy. R does not see the
/// header.
pub const WORKER_HEADER: &str = "rookery-call";

/// The maximum length in bytes of the value of a worker header. The longest part is the
/// certificate's subject, which is truncated to fit.
pub const MAX_WORKER_HEADER_SIZE: usize = 4096;

/// The maximum length of a request's id in characters. The access log has the same limit.
const MOST_ID: usize = 128;

/// The maximum length in bytes of a certificate's subject in its escaped form. A longer subject is
/// truncated.
const MOST_SUBJECT: usize = 3072;

/// The value of [`WORKER_HEADER`] in a worker's response to a request head that was sent without
/// its body ([`BodyState::Deferred`]). It means that the application accepts the request. The
/// supervisor then sends the body, and the application does not inspect the head again.
pub const HEAD_ACCEPTED: &str = "go-on";

/// The value of [`WORKER_HEADER`] in a worker's response to a request head that was sent without
/// its body. It means that the application has not decided yet. The supervisor then sends the head
/// again together with the body, and the application inspects the head again.
pub const HEAD_UNDECIDED: &str = "ask-again";

/// The first word in the value of a worker header, which is the version of the format.
const BEGIN: &str = "1";

/// The word in a worker header that stands for an absent part.
const NONE: &str = "-";

/// The information about a request that a supervisor passes on to a worker in the worker header.
///
/// The text form of a worker header consists of words that are separated by single spaces. `-`
/// stands for an absent part. The words are:
/// - `1`, the version of the format
/// - the ticket
/// - `http` or `https`
/// - the client's address
/// - the address that the client connected to
/// - the request's id
/// - the fingerprint of the client's certificate
/// - the subject of the client's certificate
/// - only if the request's body is sent later: `head`, `head:chunked`, or `head:` with the number
///   of bytes of the body
/// - only if the application has already inspected the request's head: `seen`
///
/// ```
/// use rookery_worker_protocol::{BodyState, WorkerHeader, ClientCertificate, Ticket};
///
/// let call = WorkerHeader {
///     ticket: Ticket::new(17, 3),
///     is_https: true,
///     remote: Some("192.0.2.1:40000".parse().unwrap()),
///     local: Some("198.51.100.7:443".parse().unwrap()),
///     id: Some("5f1c".to_owned()),
///     client: None,
///     body: BodyState::Included,
/// };
/// assert_eq!(call.to_string(), "1 4403 https 192.0.2.1:40000 198.51.100.7:443 5f1c - -");
/// assert_eq!(WorkerHeader::parse(call.to_string().as_bytes()), Ok(call));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerHeader {
    /// The ticket, which is the number that identifies the request on the scoreboard.
    pub ticket: Option<Ticket>,
    /// True if the client used `https`.
    pub is_https: bool,
    /// The client's address, or `None` if the client is connected to a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The address of the server that the client connected to, or `None` for a Unix socket.
    pub local: Option<SocketAddr>,
    /// The request's id in the supervisor's access log: at most 128 visible ASCII characters. Any
    /// other id is omitted from the text form of the worker header.
    pub id: Option<String>,
    /// The client's certificate, which the supervisor has verified.
    pub client: Option<ClientCertificate>,
    /// Whether the request's body follows the head, or is still to be sent by the supervisor.
    pub body: BodyState,
}

/// The state of a request that a supervisor sends to a worker: whether the body is included, and
/// whether the application has already inspected the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyState {
    /// The request's body follows the head, or the request has no body.
    #[default]
    Included,
    /// The supervisor has sent only the head of the request. The worker shows the head to the
    /// application, which may reject the request before the client sends its body.
    Deferred(BodyLength),
    /// The request's body follows the head, and the application has already inspected the head, in
    /// this worker or in another.
    HeadSeen,
}

/// The length of a request's body, as the request's head states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// The number of bytes that `Content-Length` states.
    Bytes(u64),
    /// The length is unknown until the body ends, because the body is sent with the chunked
    /// transfer coding.
    Chunked,
    /// The head does not state the length of the body, which HTTP/2 allows.
    Unknown,
}

/// The identity of a client according to its TLS certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The SHA-256 fingerprint of the client's certificate: 64 lower-case hexadecimal digits. A
    /// certificate with any other fingerprint is omitted from the text form of the worker header.
    pub fingerprint: String,
    /// The subject of the client's certificate in the notation of RFC 4514, truncated to about
    /// 3,000 bytes.
    pub subject: String,
}

/// The reason why the value of a worker header is invalid. The error message does not contain any
/// part of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerHeaderError {
    /// The value of the worker header is longer than [`MAX_WORKER_HEADER_SIZE`].
    TooLong,
    /// The value of the worker header does not consist of the expected number of words of visible
    /// ASCII, or has an unknown version.
    Form,
    /// The ticket in the worker header is invalid.
    Ticket,
    /// The scheme in the worker header is neither `http` nor `https`.
    Scheme,
    /// An address in the worker header cannot be parsed.
    Address,
    /// The request's id in the worker header is too long or contains invalid characters.
    Id,
    /// The fingerprint or the subject of the certificate in the worker header is invalid.
    Client,
    /// The word in the worker header that describes the body is unknown.
    Body,
}

impl fmt::Display for WorkerHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkerHeaderError::TooLong => "the header is too long",
            WorkerHeaderError::Form => "the header does not have the form of version 1",
            WorkerHeaderError::Ticket => "the ticket is invalid",
            WorkerHeaderError::Scheme => "the scheme is invalid",
            WorkerHeaderError::Address => "an address is invalid",
            WorkerHeaderError::Id => "the request id is invalid",
            WorkerHeaderError::Client => "the certificate is invalid",
            WorkerHeaderError::Body => "the description of the body is invalid",
        })
    }
}

impl std::error::Error for WorkerHeaderError {}

/// A [`WorkerHeader`] with borrowed strings, from which a supervisor writes the header. Writing
/// allocates memory only if there is a client certificate.
#[derive(Debug, Clone, Copy, Default)]
pub struct BorrowedWorkerHeader<'a> {
    /// The ticket, which is the number that identifies the request on the scoreboard.
    pub ticket: Option<Ticket>,
    /// True if the client used `https`.
    pub is_https: bool,
    /// The client's address, or `None` if the client is connected to a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The address of the server that the client connected to, or `None` for a Unix socket.
    pub local: Option<SocketAddr>,
    /// The request's id in the supervisor's access log.
    pub id: Option<&'a str>,
    /// The fingerprint and the subject of the client's certificate, which the supervisor has
    /// verified.
    pub client: Option<(&'a str, &'a str)>,
    /// Whether the request's body follows the head, or is still to be sent by the supervisor.
    pub body: BodyState,
}

impl fmt::Display for BorrowedWorkerHeader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEGIN} ")?;
        word(f, self.ticket)?;
        f.write_str(if self.is_https { "https " } else { "http " })?;
        word(f, self.remote)?;
        word(f, self.local)?;
        word(f, self.id.filter(|id| is_id(id.as_bytes())))?;
        match self.client.filter(|(fingerprint, _)| is_fingerprint(fingerprint.as_bytes())) {
            Some((fingerprint, subject)) => {
                write!(f, "{fingerprint} ")?;
                escape(f, subject)?;
            }
            None => f.write_str("- -")?,
        }
        match self.body {
            BodyState::Included => Ok(()),
            BodyState::Deferred(BodyLength::Unknown) => f.write_str(" head"),
            BodyState::Deferred(BodyLength::Chunked) => f.write_str(" head:chunked"),
            BodyState::Deferred(BodyLength::Bytes(len)) => write!(f, " head:{len}"),
            BodyState::HeadSeen => f.write_str(" seen"),
        }
    }
}

impl fmt::Display for WorkerHeader {
    /// Writes the text form of the worker header, which [`parse`](WorkerHeader::parse) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client.as_ref().map(|client| (&*client.fingerprint, &*client.subject));
        let WorkerHeader { ticket, is_https, remote, local, ref id, body, .. } = *self;
        BorrowedWorkerHeader { ticket, is_https, remote, local, id: id.as_deref(), client, body }
            .fmt(f)
    }
}

fn word(f: &mut fmt::Formatter<'_>, word: Option<impl fmt::Display>) -> fmt::Result {
    match word {
        Some(word) => write!(f, "{word} "),
        None => write!(f, "{NONE} "),
    }
}

impl WorkerHeader {
    /// Parses the value of a worker header.
    ///
    /// # Errors
    /// Returns the [`WorkerHeaderError`] that names the first invalid part.
    pub fn parse(value: &[u8]) -> Result<WorkerHeader, WorkerHeaderError> {
        if value.len() > MAX_WORKER_HEADER_SIZE {
            return Err(WorkerHeaderError::TooLong);
        }
        if !value.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(WorkerHeaderError::Form);
        }
        let value = std::str::from_utf8(value).map_err(|_| WorkerHeaderError::Form)?;
        let mut words = value.split(' ');
        let mut next =
            || words.next().filter(|word| !word.is_empty()).ok_or(WorkerHeaderError::Form);
        if next()? != BEGIN {
            return Err(WorkerHeaderError::Form);
        }
        let mut given = || next().map(|word| Some(word).filter(|word| *word != NONE));
        let ticket =
            given()?.map(|word| ticket(word).ok_or(WorkerHeaderError::Ticket)).transpose()?;
        let is_https = match given()? {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(WorkerHeaderError::Scheme),
        };
        let remote = given()?.map(address).transpose()?;
        let local = given()?.map(address).transpose()?;
        let id = given()?.map(|id| {
            if is_id(id.as_bytes()) { Ok(id.to_owned()) } else { Err(WorkerHeaderError::Id) }
        });
        let id = id.transpose()?;
        let (fingerprint, subject) = (given()?, next()?);
        let body =
            words.next().map_or(Some(BodyState::Included), body).ok_or(WorkerHeaderError::Body)?;
        if words.next().is_some() {
            return Err(WorkerHeaderError::Form);
        }
        let client = match fingerprint {
            Some(fingerprint)
                if is_fingerprint(fingerprint.as_bytes()) && subject.len() <= MOST_SUBJECT =>
            {
                let subject = unescape(subject).ok_or(WorkerHeaderError::Client)?;
                Some(ClientCertificate { fingerprint: fingerprint.to_owned(), subject })
            }
            None if subject == NONE => None,
            _ => return Err(WorkerHeaderError::Client),
        };
        Ok(WorkerHeader { ticket, is_https, remote, local, id, client, body })
    }
}

/// Parses the ticket in a worker header, which is a hexadecimal number without leading zeros.
fn ticket(word: &str) -> Option<Ticket> {
    let is_plain = word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && !word.starts_with('0');
    u64::from_str_radix(word, 16).ok().filter(|_| is_plain).and_then(Ticket::of_word)
}

/// Parses the ninth word of a worker header, which describes the request's body.
fn body(word: &str) -> Option<BodyState> {
    match word {
        "seen" => Some(BodyState::HeadSeen),
        "head" => Some(BodyState::Deferred(BodyLength::Unknown)),
        "head:chunked" => Some(BodyState::Deferred(BodyLength::Chunked)),
        _ => {
            let digits = word.strip_prefix("head:")?;
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit())
                && (digits == "0" || !digits.starts_with('0'));
            let len = digits.parse().ok().filter(|_| is_plain)?;
            Some(BodyState::Deferred(BodyLength::Bytes(len)))
        }
    }
}

/// Parses an address in a worker header, which is an IP address with a port.
fn address(word: &str) -> Result<SocketAddr, WorkerHeaderError> {
    word.parse().map_err(|_| WorkerHeaderError::Address)
}

fn is_id(id: &[u8]) -> bool {
    (1..=MOST_ID).contains(&id.len())
        && id != NONE.as_bytes()
        && id.iter().all(|byte| matches!(byte, b'!'..=b'~'))
}

fn is_fingerprint(text: &[u8]) -> bool {
    text.len() == 64 && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Writes the subject of a certificate as one word: letters, digits and most punctuation unchanged,
/// and all other bytes as `%` and two hexadecimal digits. An empty subject is written as `*`.
fn escape(f: &mut fmt::Formatter<'_>, subject: &str) -> fmt::Result {
    if subject.is_empty() {
        return f.write_str("*");
    }
    let mut len = 0;
    for char in subject.chars() {
        let (mut bytes, mut text) = ([0; 4], String::new());
        for byte in char.encode_utf8(&mut bytes).bytes() {
            match byte {
                b'!' | b'"' | b'#' | b'$' | b'&'..=b')' | b'+'..=b'~'
                    if (byte, len) != (b'-', 0) =>
                {
                    text.push(char::from(byte));
                }
                _ => write!(text, "%{byte:02X}")?,
            }
        }
        len += text.len();
        if len > MOST_SUBJECT {
            break;
        }
        f.write_str(&text)?;
    }
    Ok(())
}

fn unescape(text: &str) -> Option<String> {
    if text == "*" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        if *first == b'%' {
            let digits = others.get(..2)?;
            if !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'A'..=b'F')) {
                return None;
            }
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = &others[2..];
        } else {
            bytes.push(*first);
            rest = others;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> WorkerHeader {
        WorkerHeader {
            ticket: Ticket::new(1, 5),
            is_https: true,
            remote: Some("[2001:db8::1]:40000".parse().unwrap()),
            local: Some("198.51.100.7:443".parse().unwrap()),
            id: Some("a.b/c=".to_owned()),
            client: Some(ClientCertificate {
                fingerprint: "0123456789abcdef".repeat(4),
                subject: "CN=Ada \u{e9}%*,O=-".to_owned(),
            }),
            body: BodyState::HeadSeen,
        }
    }

    fn round(call: &WorkerHeader) {
        let text = call.to_string();
        assert!(text.len() <= MAX_WORKER_HEADER_SIZE);
        assert_eq!(WorkerHeader::parse(text.as_bytes()).as_ref(), Ok(call), "{text}");
    }

    #[test]
    fn text_form_round_trips() {
        round(&full());
        round(&WorkerHeader::default());
        assert_eq!(WorkerHeader::default().to_string(), "1 - http - - - - -");
        round(&WorkerHeader { client: None, ..full() });
        for announced in [0, 1, 12, u64::MAX].map(BodyLength::Bytes) {
            round(&WorkerHeader { body: BodyState::Deferred(announced), ..full() });
        }
        for body in [
            BodyState::Included,
            BodyState::Deferred(BodyLength::Chunked),
            BodyState::Deferred(BodyLength::Unknown),
        ] {
            round(&WorkerHeader { body, ..full() });
            round(&WorkerHeader { body, ..WorkerHeader::default() });
        }
        for subject in ["", "-", "*", "a b", "%", "\u{10FFFF}", "--"] {
            let client = full()
                .client
                .map(|client| ClientCertificate { subject: subject.to_owned(), ..client });
            round(&WorkerHeader { client, ..full() });
        }
    }

    #[test]
    fn omits_values_that_cannot_be_written() {
        for id in ["", "-", "a b", "\u{e9}", "a\n", &"x".repeat(MOST_ID + 1)] {
            let call = WorkerHeader { id: Some(id.to_owned()), ..full() };
            assert_eq!(
                WorkerHeader::parse(call.to_string().as_bytes()),
                Ok(WorkerHeader { id: None, ..full() }),
                "{id:?}"
            );
        }
        round(&WorkerHeader { id: Some("x".repeat(MOST_ID)), ..full() });
        let client = ClientCertificate { fingerprint: "0 1".to_owned(), subject: String::new() };
        let call = WorkerHeader { client: Some(client), ..full() };
        assert_eq!(
            WorkerHeader::parse(call.to_string().as_bytes()),
            Ok(WorkerHeader { client: None, ..full() })
        );
        // The subject is truncated between two characters.
        let client =
            ClientCertificate { fingerprint: "a".repeat(64), subject: "\u{e9}".repeat(2000) };
        let call = WorkerHeader { client: Some(client), ..full() };
        let read = WorkerHeader::parse(call.to_string().as_bytes()).unwrap().client.unwrap();
        assert_eq!(read.subject, "\u{e9}".repeat(MOST_SUBJECT / 6));
    }

    #[test]
    fn rejects_malformed_values() {
        let print = "0".repeat(64);
        for (text, error) in [
            ("", WorkerHeaderError::Form),
            ("1", WorkerHeaderError::Form),
            ("2 - http - - - - -", WorkerHeaderError::Form),
            ("1 - http - - - - - ", WorkerHeaderError::Body),
            ("1 - http - - - - - -", WorkerHeaderError::Body),
            ("1 - http - - - - - head seen", WorkerHeaderError::Form),
            ("1 - http - - - - - Seen", WorkerHeaderError::Body),
            ("1 - http - - - - - head:", WorkerHeaderError::Body),
            ("1 - http - - - - - head:00", WorkerHeaderError::Body),
            ("1 - http - - - - - head:+1", WorkerHeaderError::Body),
            ("1 - http - - - - - head:-1", WorkerHeaderError::Body),
            ("1 - http - - - - - head:1a", WorkerHeaderError::Body),
            ("1 - http - - - - - head:18446744073709551616", WorkerHeaderError::Body),
            ("1  - http - - - - -", WorkerHeaderError::Form),
            ("1 - http - - - -", WorkerHeaderError::Form),
            ("1\t- http - - - - -", WorkerHeaderError::Form),
            ("1 - http - - - - \u{e9}", WorkerHeaderError::Form),
            ("1 0 http - - - - -", WorkerHeaderError::Ticket),
            ("1 5 http - - - - -", WorkerHeaderError::Ticket),
            ("1 0405 http - - - - -", WorkerHeaderError::Ticket),
            ("1 +405 http - - - - -", WorkerHeaderError::Ticket),
            ("1 ABC http - - - - -", WorkerHeaderError::Ticket),
            ("1 10000000000000000 http - - - - -", WorkerHeaderError::Ticket),
            ("1 - HTTP - - - - -", WorkerHeaderError::Scheme),
            ("1 - - - - - - -", WorkerHeaderError::Scheme),
            ("1 - http localhost:1 - - - -", WorkerHeaderError::Address),
            ("1 - http 192.0.2.1 - - - -", WorkerHeaderError::Address),
            ("1 - http - 192.0.2.1:65536 - - -", WorkerHeaderError::Address),
            (&format!("1 - http - - {} - -", "x".repeat(MOST_ID + 1)), WorkerHeaderError::Id),
            ("1 - http - - - - x", WorkerHeaderError::Client),
            ("1 - http - - - abc CN=a", WorkerHeaderError::Client),
            (&format!("1 - http - - - {print} %"), WorkerHeaderError::Client),
            (&format!("1 - http - - - {print} %4"), WorkerHeaderError::Client),
            (&format!("1 - http - - - {print} %+4"), WorkerHeaderError::Client),
            (&format!("1 - http - - - {print} %e9"), WorkerHeaderError::Client),
            (&format!("1 - http - - - {print} %E9"), WorkerHeaderError::Client),
            (
                &format!("1 - http - - - {print} {}", "x".repeat(MOST_SUBJECT + 1)),
                WorkerHeaderError::Client,
            ),
            (
                &format!("1 - http - - - {print} {}", "x".repeat(MAX_WORKER_HEADER_SIZE)),
                WorkerHeaderError::TooLong,
            ),
        ] {
            assert_eq!(WorkerHeader::parse(text.as_bytes()), Err(error), "{text}");
        }
        assert_eq!(WorkerHeader::parse(b"1 - http - - \xFF - -"), Err(WorkerHeaderError::Form));
    }
}
