//! The header by which a supervisor tells a worker what a request is called and whose it is.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;

use crate::ticket::Ticket;

/// The header's name. A supervisor sets it on every request that it passes on, and drops what a client sent by that name; a worker hears it
/// from its supervisor alone, and R does not see it.
pub const WORKER_HEADER: &str = "rookery-call";

/// Bytes of a value: a subject is the longest part, and is cut.
pub const MAX_WORKER_HEADER_SIZE: usize = 4096;

/// Characters of a request's id, which a log has.
const MOST_ID: usize = 128;

/// Bytes of a certificate's subject as they are written, with escapes; a longer one is cut.
const MOST_SUBJECT: usize = 3072;

/// By [`WORKER_HEADER`], what a worker says of a head that came alone ([`BodyState::Deferred`]), in a reply that is no app's: its body is to be
/// sent, and the head has been seen.
pub const HEAD_ACCEPTED: &str = "go-on";

/// The same where the app will have to see the head once more, with its body behind it.
pub const HEAD_UNDECIDED: &str = "ask-again";

/// What comes first: the version.
const BEGIN: &str = "1";

/// What stands for a part that there is none of.
const NONE: &str = "-";

/// What a supervisor says of a request that it passes on.
///
/// Its text is words with a space between: `1`, the ticket, `http` or `https`, the client's address, the address that it reached, the
/// request's id, and the fingerprint and the subject of its certificate. `-` stands for what there is none of. A ninth says where the body
/// is, if it is not behind its head: `head` alone, `head:chunked` or `head:` and a number of bytes, or `seen`.
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
    /// What it is called on the scoreboard.
    pub ticket: Option<Ticket>,
    /// Whether the client came by `https`.
    pub is_https: bool,
    /// The client's address; `None` on a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The address that it reached; `None` on a Unix socket.
    pub local: Option<SocketAddr>,
    /// What the supervisor's log calls it: visible ASCII, 128 characters at most. Others are left out when it is written.
    pub id: Option<String>,
    /// Whom the client's certificate, which the supervisor has verified, names.
    pub client: Option<ClientCertificate>,
    /// Where its body is.
    pub body: BodyState,
}

/// Where the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyState {
    /// Behind its head, or there is none.
    #[default]
    Included,
    /// With the client: the head is shown to the app, which may refuse what would come.
    Deferred(BodyLength),
    /// Behind its head, which the app has seen, at this worker or another.
    HeadSeen,
}

/// What a head says of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// That it has so many bytes.
    Bytes(u64),
    /// That it comes in chunks.
    Chunked,
    /// Nothing, as HTTP/2 allows.
    Unknown,
}

/// A client's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its SHA-256, in hexadecimal: 64 small letters and digits. Without that it is not written.
    pub fingerprint: String,
    /// Its subject, as RFC 4514 writes it; cut behind some 3,000 bytes.
    pub subject: String,
}

/// What is wrong with a value. It says nothing of what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerHeaderError {
    /// More than [`MAX_WORKER_HEADER_SIZE`].
    TooLong,
    /// Not the words of visible ASCII that follow a version that is known.
    Form,
    /// The ticket is none.
    Ticket,
    /// Neither `http` nor `https`.
    Scheme,
    /// An address is none.
    Address,
    /// The id is too long.
    Id,
    /// The certificate's fingerprint or subject.
    Client,
    /// Where its body is.
    Body,
}

impl fmt::Display for WorkerHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkerHeaderError::TooLong => "it is too long",
            WorkerHeaderError::Form => "it is not the words of version 1",
            WorkerHeaderError::Ticket => "its ticket is none",
            WorkerHeaderError::Scheme => "its scheme is none",
            WorkerHeaderError::Address => "an address in it is none",
            WorkerHeaderError::Id => "its id is too long",
            WorkerHeaderError::Client => "its certificate is none",
            WorkerHeaderError::Body => "its body is nowhere",
        })
    }
}

impl std::error::Error for WorkerHeaderError {}

/// What a [`WorkerHeader`] says, to be written by whoever has it elsewhere. Writing it allocates nothing, but for a certificate.
#[derive(Debug, Clone, Copy, Default)]
pub struct BorrowedWorkerHeader<'a> {
    /// [`WorkerHeader::ticket`].
    pub ticket: Option<Ticket>,
    /// [`WorkerHeader::is_https`].
    pub is_https: bool,
    /// [`WorkerHeader::remote`].
    pub remote: Option<SocketAddr>,
    /// [`WorkerHeader::local`].
    pub local: Option<SocketAddr>,
    /// [`WorkerHeader::id`].
    pub id: Option<&'a str>,
    /// The fingerprint and the subject of [`WorkerHeader::client`].
    pub client: Option<(&'a str, &'a str)>,
    /// [`WorkerHeader::body`].
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
    /// Its text, which [`parse`](Self::parse) reads.
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
    /// The call of a header's value.
    ///
    /// # Errors
    /// What is wrong with it.
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

/// As it is written: hexadecimal without a zero before it.
fn ticket(word: &str) -> Option<Ticket> {
    let is_plain = word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && !word.starts_with('0');
    u64::from_str_radix(word, 16).ok().filter(|_| is_plain).and_then(Ticket::of_word)
}

/// As it is written.
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

/// A zone is the supervisor's: it is dropped where the address is read.
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

/// Letters and most signs as they are, all else as `%` and two hexadecimal digits. `*` alone is no subject at all.
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
    fn a_call_is_what_its_text_says() {
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
    fn what_cannot_be_written_is_left_out() {
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
        // Cut between two characters.
        let client =
            ClientCertificate { fingerprint: "a".repeat(64), subject: "\u{e9}".repeat(2000) };
        let call = WorkerHeader { client: Some(client), ..full() };
        let read = WorkerHeader::parse(call.to_string().as_bytes()).unwrap().client.unwrap();
        assert_eq!(read.subject, "\u{e9}".repeat(MOST_SUBJECT / 6));
    }

    #[test]
    fn anything_else_is_none() {
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
