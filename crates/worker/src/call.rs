//! The header by which a supervisor tells a worker what a request is called and whose it is.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;

use crate::ticket::Ticket;

/// The header's name. A supervisor sets it on every request that it passes on, and drops what a client sent by that name; a worker hears it
/// from its supervisor alone, and R does not see it.
pub const CALL_HEADER: &str = "rookery-call";

/// Bytes of a value: a subject is the longest part, and is cut.
pub const MOST_CALL_BYTES: usize = 4096;

/// Characters of a request's id, which a log has.
const MOST_ID: usize = 128;

/// Bytes of a certificate's subject as they are written, with escapes; a longer one is cut.
const MOST_SUBJECT: usize = 3072;

/// By [`CALL_HEADER`], what a worker says of a head that came alone ([`Body::Later`]), in a reply that is no app's: its body is to be
/// sent, and the head has been seen.
pub const GO_ON: &str = "go-on";

/// The same where the app will have to see the head once more, with its body behind it.
pub const ASK_AGAIN: &str = "ask-again";

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
/// use rookery_worker::{Body, Call, Client, Ticket};
///
/// let call = Call {
///     ticket: Ticket::new(17, 3),
///     is_https: true,
///     remote: Some("192.0.2.1:40000".parse().unwrap()),
///     local: Some("198.51.100.7:443".parse().unwrap()),
///     id: Some("5f1c".to_owned()),
///     client: None,
///     body: Body::Here,
/// };
/// assert_eq!(call.to_string(), "1 4403 https 192.0.2.1:40000 198.51.100.7:443 5f1c - -");
/// assert_eq!(Call::parse(call.to_string().as_bytes()), Ok(call));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Call {
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
    pub client: Option<Client>,
    /// Where its body is.
    pub body: Body,
}

/// Where the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Body {
    /// Behind its head, or there is none.
    #[default]
    Here,
    /// With the client: the head is shown to the app, which may refuse what would come.
    Later(Announced),
    /// Behind its head, which the app has seen, at this worker or another.
    Seen,
}

/// What a head says of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    /// That it has so many bytes.
    Bytes(u64),
    /// That it comes in chunks.
    Chunked,
    /// Nothing, as HTTP/2 allows.
    Nothing,
}

/// A client's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its SHA-256, in hexadecimal: 64 small letters and digits. Without that it is not written.
    pub fingerprint: String,
    /// Its subject, as RFC 4514 writes it; cut behind some 3,000 bytes.
    pub subject: String,
}

/// What is wrong with a value. It says nothing of what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// More than [`MOST_CALL_BYTES`].
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

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallError::TooLong => "it is too long",
            CallError::Form => "it is not the words of version 1",
            CallError::Ticket => "its ticket is none",
            CallError::Scheme => "its scheme is none",
            CallError::Address => "an address in it is none",
            CallError::Id => "its id is too long",
            CallError::Client => "its certificate is none",
            CallError::Body => "its body is nowhere",
        })
    }
}

impl std::error::Error for CallError {}

/// What a [`Call`] says, to be written by whoever has it elsewhere. Writing it allocates nothing, but for a certificate.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallText<'a> {
    /// [`Call::ticket`].
    pub ticket: Option<Ticket>,
    /// [`Call::is_https`].
    pub is_https: bool,
    /// [`Call::remote`].
    pub remote: Option<SocketAddr>,
    /// [`Call::local`].
    pub local: Option<SocketAddr>,
    /// [`Call::id`].
    pub id: Option<&'a str>,
    /// The fingerprint and the subject of [`Call::client`].
    pub client: Option<(&'a str, &'a str)>,
    /// [`Call::body`].
    pub body: Body,
}

impl fmt::Display for CallText<'_> {
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
            Body::Here => Ok(()),
            Body::Later(Announced::Nothing) => f.write_str(" head"),
            Body::Later(Announced::Chunked) => f.write_str(" head:chunked"),
            Body::Later(Announced::Bytes(len)) => write!(f, " head:{len}"),
            Body::Seen => f.write_str(" seen"),
        }
    }
}

impl fmt::Display for Call {
    /// Its text, which [`parse`](Self::parse) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client.as_ref().map(|client| (&*client.fingerprint, &*client.subject));
        let Call { ticket, is_https, remote, local, ref id, body, .. } = *self;
        CallText { ticket, is_https, remote, local, id: id.as_deref(), client, body }.fmt(f)
    }
}

fn word(f: &mut fmt::Formatter<'_>, word: Option<impl fmt::Display>) -> fmt::Result {
    match word {
        Some(word) => write!(f, "{word} "),
        None => write!(f, "{NONE} "),
    }
}

impl Call {
    /// The call of a header's value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(value: &[u8]) -> Result<Call, CallError> {
        if value.len() > MOST_CALL_BYTES {
            return Err(CallError::TooLong);
        }
        if !value.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(CallError::Form);
        }
        let value = std::str::from_utf8(value).map_err(|_| CallError::Form)?;
        let mut words = value.split(' ');
        let mut next = || words.next().filter(|word| !word.is_empty()).ok_or(CallError::Form);
        if next()? != BEGIN {
            return Err(CallError::Form);
        }
        let mut given = || next().map(|word| Some(word).filter(|word| *word != NONE));
        let ticket = given()?.map(|word| ticket(word).ok_or(CallError::Ticket)).transpose()?;
        let is_https = match given()? {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(CallError::Scheme),
        };
        let remote = given()?.map(address).transpose()?;
        let local = given()?.map(address).transpose()?;
        let id = given()?
            .map(|id| if is_id(id.as_bytes()) { Ok(id.to_owned()) } else { Err(CallError::Id) });
        let id = id.transpose()?;
        let (fingerprint, subject) = (given()?, next()?);
        let body = words.next().map_or(Some(Body::Here), body).ok_or(CallError::Body)?;
        if words.next().is_some() {
            return Err(CallError::Form);
        }
        let client = match fingerprint {
            Some(fingerprint)
                if is_fingerprint(fingerprint.as_bytes()) && subject.len() <= MOST_SUBJECT =>
            {
                let subject = unescape(subject).ok_or(CallError::Client)?;
                Some(Client { fingerprint: fingerprint.to_owned(), subject })
            }
            None if subject == NONE => None,
            _ => return Err(CallError::Client),
        };
        Ok(Call { ticket, is_https, remote, local, id, client, body })
    }
}

/// As it is written: hexadecimal without a zero before it.
fn ticket(word: &str) -> Option<Ticket> {
    let is_plain = word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && !word.starts_with('0');
    u64::from_str_radix(word, 16).ok().filter(|_| is_plain).and_then(Ticket::of_word)
}

/// As it is written.
fn body(word: &str) -> Option<Body> {
    match word {
        "seen" => Some(Body::Seen),
        "head" => Some(Body::Later(Announced::Nothing)),
        "head:chunked" => Some(Body::Later(Announced::Chunked)),
        _ => {
            let digits = word.strip_prefix("head:")?;
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit())
                && (digits == "0" || !digits.starts_with('0'));
            let len = digits.parse().ok().filter(|_| is_plain)?;
            Some(Body::Later(Announced::Bytes(len)))
        }
    }
}

/// A zone is the supervisor's: it is dropped where the address is read.
fn address(word: &str) -> Result<SocketAddr, CallError> {
    word.parse().map_err(|_| CallError::Address)
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

    fn full() -> Call {
        Call {
            ticket: Ticket::new(1, 5),
            is_https: true,
            remote: Some("[2001:db8::1]:40000".parse().unwrap()),
            local: Some("198.51.100.7:443".parse().unwrap()),
            id: Some("a.b/c=".to_owned()),
            client: Some(Client {
                fingerprint: "0123456789abcdef".repeat(4),
                subject: "CN=Ada \u{e9}%*,O=-".to_owned(),
            }),
            body: Body::Seen,
        }
    }

    fn round(call: &Call) {
        let text = call.to_string();
        assert!(text.len() <= MOST_CALL_BYTES);
        assert_eq!(Call::parse(text.as_bytes()).as_ref(), Ok(call), "{text}");
    }

    #[test]
    fn a_call_is_what_its_text_says() {
        round(&full());
        round(&Call::default());
        assert_eq!(Call::default().to_string(), "1 - http - - - - -");
        round(&Call { client: None, ..full() });
        for announced in [0, 1, 12, u64::MAX].map(Announced::Bytes) {
            round(&Call { body: Body::Later(announced), ..full() });
        }
        for body in [Body::Here, Body::Later(Announced::Chunked), Body::Later(Announced::Nothing)] {
            round(&Call { body, ..full() });
            round(&Call { body, ..Call::default() });
        }
        for subject in ["", "-", "*", "a b", "%", "\u{10FFFF}", "--"] {
            let client =
                full().client.map(|client| Client { subject: subject.to_owned(), ..client });
            round(&Call { client, ..full() });
        }
    }

    #[test]
    fn what_cannot_be_written_is_left_out() {
        for id in ["", "-", "a b", "\u{e9}", "a\n", &"x".repeat(MOST_ID + 1)] {
            let call = Call { id: Some(id.to_owned()), ..full() };
            assert_eq!(
                Call::parse(call.to_string().as_bytes()),
                Ok(Call { id: None, ..full() }),
                "{id:?}"
            );
        }
        round(&Call { id: Some("x".repeat(MOST_ID)), ..full() });
        let client = Client { fingerprint: "0 1".to_owned(), subject: String::new() };
        let call = Call { client: Some(client), ..full() };
        assert_eq!(Call::parse(call.to_string().as_bytes()), Ok(Call { client: None, ..full() }));
        // Cut between two characters.
        let client = Client { fingerprint: "a".repeat(64), subject: "\u{e9}".repeat(2000) };
        let call = Call { client: Some(client), ..full() };
        let read = Call::parse(call.to_string().as_bytes()).unwrap().client.unwrap();
        assert_eq!(read.subject, "\u{e9}".repeat(MOST_SUBJECT / 6));
    }

    #[test]
    fn anything_else_is_none() {
        let print = "0".repeat(64);
        for (text, error) in [
            ("", CallError::Form),
            ("1", CallError::Form),
            ("2 - http - - - - -", CallError::Form),
            ("1 - http - - - - - ", CallError::Body),
            ("1 - http - - - - - -", CallError::Body),
            ("1 - http - - - - - head seen", CallError::Form),
            ("1 - http - - - - - Seen", CallError::Body),
            ("1 - http - - - - - head:", CallError::Body),
            ("1 - http - - - - - head:00", CallError::Body),
            ("1 - http - - - - - head:+1", CallError::Body),
            ("1 - http - - - - - head:-1", CallError::Body),
            ("1 - http - - - - - head:1a", CallError::Body),
            ("1 - http - - - - - head:18446744073709551616", CallError::Body),
            ("1  - http - - - - -", CallError::Form),
            ("1 - http - - - -", CallError::Form),
            ("1\t- http - - - - -", CallError::Form),
            ("1 - http - - - - \u{e9}", CallError::Form),
            ("1 0 http - - - - -", CallError::Ticket),
            ("1 5 http - - - - -", CallError::Ticket),
            ("1 0405 http - - - - -", CallError::Ticket),
            ("1 +405 http - - - - -", CallError::Ticket),
            ("1 ABC http - - - - -", CallError::Ticket),
            ("1 10000000000000000 http - - - - -", CallError::Ticket),
            ("1 - HTTP - - - - -", CallError::Scheme),
            ("1 - - - - - - -", CallError::Scheme),
            ("1 - http localhost:1 - - - -", CallError::Address),
            ("1 - http 192.0.2.1 - - - -", CallError::Address),
            ("1 - http - 192.0.2.1:65536 - - -", CallError::Address),
            (&format!("1 - http - - {} - -", "x".repeat(MOST_ID + 1)), CallError::Id),
            ("1 - http - - - - x", CallError::Client),
            ("1 - http - - - abc CN=a", CallError::Client),
            (&format!("1 - http - - - {print} %"), CallError::Client),
            (&format!("1 - http - - - {print} %4"), CallError::Client),
            (&format!("1 - http - - - {print} %+4"), CallError::Client),
            (&format!("1 - http - - - {print} %e9"), CallError::Client),
            (&format!("1 - http - - - {print} %E9"), CallError::Client),
            (
                &format!("1 - http - - - {print} {}", "x".repeat(MOST_SUBJECT + 1)),
                CallError::Client,
            ),
            (
                &format!("1 - http - - - {print} {}", "x".repeat(MOST_CALL_BYTES)),
                CallError::TooLong,
            ),
        ] {
            assert_eq!(Call::parse(text.as_bytes()), Err(error), "{text}");
        }
        assert_eq!(Call::parse(b"1 - http - - \xFF - -"), Err(CallError::Form));
    }
}
