//! A reply, from what the application wrote into the exchange to what hyper sends.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, Bytes};
use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};
use http_body::{Frame, SizeHint};
use rookery_exchange::{Charge, Exchange};

use crate::closing::Unnamed;
use crate::compress::{self, Candidate, Gzip};
use crate::connection::{Connection, Phase};
use crate::job::Job;
use crate::overload::COMPRESSOR_BYTES;
use crate::rejection::Rejection;
use crate::request;

/// Bytes of a file read at once.
const PIECE: usize = 64 << 10;

/// Seconds a client is asked to wait when the queue is full: by then a second of work is done.
const RETRY_SECONDS: &str = "1";

/// What hyper is given to send. Dropped when it has been encoded, or when the connection ends before.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    connection: Rc<Connection>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Empty,
    Whole(Bytes),
    /// To be compressed before anything is sent: see [`compressed`].
    Plain(Bytes, Charge),
    File(FileSource),
    Gzip(Box<GzipSource>),
}

/// A file, read piece by piece on another thread: the next piece when the last has been taken.
#[derive(Debug)]
struct FileSource {
    file: Arc<Body>,
    at: u64,
    left: u64,
    reading: Option<Job<Vec<u8>>>,
}

/// What is compressed on its way out, on another thread: a piece takes milliseconds.
#[derive(Debug)]
struct GzipSource {
    /// `None` while it is away, and when the end has come.
    compressing: Option<Compressing>,
    working: Option<Job<Compressed>>,
}

#[derive(Debug)]
enum Input {
    Whole(Bytes),
    File { file: Arc<Body>, at: u64, left: u64 },
}

/// A file that is sent, by how it is closed.
#[derive(Debug)]
enum Body {
    Named(File),
    Unnamed(Unnamed),
}

impl std::ops::Deref for Body {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Body::Named(file) => file,
            Body::Unnamed(file) => file,
        }
    }
}

/// A compressor, what is left for it, and what it is charged for: wherever it is, until it is gone.
#[derive(Debug)]
struct Compressing {
    gzip: Gzip,
    input: Input,
    _charge: Charge,
}

#[derive(Debug)]
struct Compressed {
    /// `None` after the last piece.
    rest: Option<Compressing>,
    out: Vec<u8>,
}

impl FileSource {
    fn new(file: Body, at: u64, left: u64) -> FileSource {
        FileSource { file: Arc::new(file), at, left, reading: None }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let reading = self.reading.get_or_insert_with(|| {
            let (file, at) = (Arc::clone(&self.file), self.at);
            let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE);
            Job::start(move || {
                let mut piece = vec![0; len];
                // A file that has become shorter since its length was told: the reply cannot be completed.
                file.read_exact_at(&mut piece, at).map(|()| piece)
            })
        });
        let piece = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        Poll::Ready(Some(match piece {
            Ok(piece) => {
                self.at += piece.len() as u64;
                self.left -= piece.len() as u64;
                Ok(piece)
            }
            Err(error) => Err(error),
        }))
    }
}

/// Bodies up to here are compressed where they are: a tenth of a millisecond, which the hand-over costs in part.
const GZIP_HERE: usize = 4 << 10;

/// Bodies up to here are compressed at once and keep a length; larger ones in pieces of this size.
const GZIP_PIECE: usize = 64 << 10;

impl Compressing {
    /// Compresses pieces until something comes out.
    fn work(mut self) -> io::Result<Compressed> {
        let mut out = Vec::new();
        loop {
            let is_last = match &mut self.input {
                Input::Whole(bytes) => {
                    self.gzip.push(&bytes.split_to(bytes.len().min(GZIP_PIECE)), &mut out);
                    bytes.is_empty()
                }
                Input::File { file, at, left } => {
                    let mut piece = vec![0; usize::try_from(*left).unwrap_or(usize::MAX).min(GZIP_PIECE)];
                    file.read_exact_at(&mut piece, *at)?;
                    self.gzip.push(&piece, &mut out);
                    *at += piece.len() as u64;
                    *left -= piece.len() as u64;
                    *left == 0
                }
            };
            if is_last {
                self.gzip.finish(&mut out);
                return Ok(Compressed { rest: None, out });
            }
            if !out.is_empty() {
                return Ok(Compressed { rest: Some(self), out });
            }
        }
    }
}

impl GzipSource {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        if let Some(compressing) = self.compressing.take() {
            self.working = Some(Job::start(move || compressing.work()));
        }
        let Some(working) = &mut self.working else { return Poll::Ready(None) };
        let compressed = ready!(Pin::new(working).poll(cx));
        self.working = None;
        Poll::Ready(Some(compressed.map(|compressed| {
            self.compressing = compressed.rest;
            compressed.out
        })))
    }
}

impl http_body::Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = match &mut self.source {
            Source::Empty => None,
            Source::Whole(bytes) | Source::Plain(bytes, _) => {
                let bytes = std::mem::take(bytes);
                self.source = Source::Empty;
                self.connection.line.add_bytes(bytes.len());
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Source::File(file) => ready!(file.poll_piece(cx)),
            Source::Gzip(gzip) => ready!(gzip.poll_piece(cx)),
        };
        if let Some(Ok(bytes)) = &piece {
            self.connection.line.add_bytes(bytes.len());
        }
        Poll::Ready(piece.map(|piece| piece.map(|bytes| Frame::data(Bytes::from(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty => true,
            Source::Whole(bytes) | Source::Plain(bytes, _) => bytes.is_empty(),
            Source::File(file) => file.left == 0,
            Source::Gzip(gzip) => gzip.compressing.is_none() && gzip.working.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty => SizeHint::with_exact(0),
            Source::Whole(bytes) | Source::Plain(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Source::File(file) => SizeHint::with_exact(file.left),
            Source::Gzip(_) => SizeHint::default(),
        }
    }
}

impl ReplyBody {
    /// Whether [`compressed`] has to come first.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.source, Source::Plain(..))
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if self.connection.phase.get() == Phase::Reply {
            self.connection.enter(Phase::Flush);
        }
    }
}

/// What a reply's body is made of.
#[derive(Debug)]
pub(crate) enum Content {
    /// There is none: HEAD tells no length of it.
    Nothing,
    Whole(Bytes),
    File {
        file: File,
        at: u64,
        len: u64,
    },
    /// The application's: it may have been unlinked already.
    Unnamed {
        file: Unnamed,
        len: u64,
    },
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Content::Nothing => 0,
            Content::Whole(bytes) => bytes.len() as u64,
            Content::File { len, .. } | Content::Unnamed { len, .. } => *len,
        }
    }

    /// Bytes that it holds until it has been sent.
    fn held(&self) -> usize {
        match self {
            Content::Nothing => 0,
            Content::Whole(bytes) => bytes.len(),
            Content::File { .. } | Content::Unnamed { .. } => PIECE,
        }
    }

    /// Bytes that compressing it holds besides, possibly for longer than its client stays.
    fn compressor_bytes(&self) -> usize {
        match self {
            Content::Whole(bytes) if bytes.len() <= GZIP_HERE => 0,
            Content::Whole(bytes) if bytes.len() <= GZIP_PIECE => bytes.len(),
            Content::Nothing => 0,
            _ => COMPRESSOR_BYTES,
        }
    }

    fn source(self) -> Source {
        match self {
            Content::Nothing => Source::Empty,
            Content::Whole(bytes) if bytes.is_empty() => Source::Empty,
            Content::Whole(bytes) => Source::Whole(bytes),
            Content::File { file, at, len } => Source::File(FileSource::new(Body::Named(file), at, len)),
            Content::Unnamed { file, len } => Source::File(FileSource::new(Body::Unnamed(file), 0, len)),
        }
    }

    /// The source of the compressed body; a very small one is compressed here.
    fn compressed(self, connection: &Connection, charge: Charge) -> Source {
        let input = match self {
            Content::Nothing => return Source::Empty,
            Content::Whole(bytes) if bytes.len() <= GZIP_HERE => {
                return Source::Whole(gzip(&mut connection.hub.gzip.borrow_mut(), &bytes));
            }
            Content::Whole(bytes) if bytes.len() <= GZIP_PIECE => return Source::Plain(bytes, charge),
            Content::Whole(bytes) => Input::Whole(bytes),
            Content::File { file, at, len } => {
                Input::File { file: Arc::new(Body::Named(file)), at, left: len }
            }
            Content::Unnamed { file, len } => {
                Input::File { file: Arc::new(Body::Unnamed(file)), at: 0, left: len }
            }
        };
        let compressing = Compressing { gzip: Gzip::new(), input, _charge: charge };
        Source::Gzip(Box::new(GzipSource { compressing: Some(compressing), working: None }))
    }
}

thread_local! {
    /// The compressor of a thread that blocks: there are few of them, and they end when they are idle.
    static GZIP: RefCell<Option<Gzip>> = const { RefCell::new(None) };
}

/// Compresses a body that is to keep a length, on another thread.
pub(crate) async fn compressed(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    let ReplyBody { connection, source } = response.body_mut();
    if let Source::Plain(bytes, charge) = std::mem::replace(source, Source::Empty) {
        let plain = bytes.clone();
        let work = move || {
            let out = GZIP.with_borrow_mut(|state| gzip(state, &plain));
            drop(charge);
            Ok(out)
        };
        *source = Source::Whole(match Job::start(work).await {
            Ok(bytes) => bytes,
            // No thread, then here.
            Err(_) => gzip(&mut connection.hub.gzip.borrow_mut(), &bytes),
        });
    }
    response
}

fn gzip(state: &mut Option<Gzip>, bytes: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(bytes.len() / 2 + 64);
    state.get_or_insert_default().compress(bytes, &mut out);
    out.into()
}

/// What the request says about the form of its reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) is_head: bool,
    pub(crate) accepts_gzip: bool,
}

impl Terms {
    pub(crate) fn of(head: &http::request::Parts) -> Terms {
        let any = Candidate {
            method: &head.method,
            version: head.version,
            status: StatusCode::OK,
            headers: &HeaderMap::new(),
            len: None,
        };
        let accepted = head.headers.get(ACCEPT_ENCODING).map(HeaderValue::as_bytes);
        Terms {
            is_head: head.method == Method::HEAD,
            accepts_gzip: accepted.is_some() && compress::negotiate(accepted, &any),
        }
    }
}

/// Makes the response. `headers` is the request's table, emptied and used again; the bytes of the reply are copied
/// into the connection's buffer, so that the exchange is free at once.
pub(crate) fn build(
    connection: &Rc<Connection>,
    exchange: &mut Exchange,
    mut headers: HeaderMap,
    terms: Terms,
) -> Response<ReplyBody> {
    let Ok(status) = StatusCode::from_u16(exchange.reply().status()) else {
        return reject(connection, headers, Rejection::Application);
    };
    let closes = connection.is_ending() || connection.has_rest.get();
    headers.clear();
    let mut facts = Facts { closes, told_length: None };
    let body = {
        let copied = exchange.reply_copied().unwrap_or_default();
        let total = exchange.reply_headers().map(|(_, value)| value.len()).sum::<usize>() + copied.len();
        let mut out = connection.out.borrow_mut();
        out.reserve(total);
        for (name, value) in exchange.reply_headers() {
            let Some(name) = connection.hub.header_name(name) else { continue };
            if facts.takes(&name, value) {
                out.put_slice(value);
                if let Ok(value) = HeaderValue::from_maybe_shared(out.split().freeze()) {
                    headers.append(name, value);
                }
            }
        }
        out.put_slice(copied);
        out.split().freeze()
    };
    let content = match exchange.reply_mut().take_body() {
        rookery_exchange::ReplyBody::None => Content::Nothing,
        rookery_exchange::ReplyBody::Copied => Content::Whole(body),
        rookery_exchange::ReplyBody::Lent(lease) => Content::Whole(Bytes::from_owner(lease)),
        rookery_exchange::ReplyBody::File { file, len } => Content::Unnamed { file: Unnamed::new(file), len },
    };
    finish(connection, status, headers, content, &facts, terms)
}

/// What the headers of a reply say about framing.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) closes: bool,
    /// The application's Content-Length.
    pub(crate) told_length: Option<u64>,
}

impl Facts {
    /// Whether a header is sent as it is. Framing and the connection are the server's business (RFC 9110, 7.6.1).
    fn takes(&mut self, name: &HeaderName, value: &[u8]) -> bool {
        match name.as_str() {
            "connection" => {
                self.closes |= request::has_token(value, b"close");
                false
            }
            "content-length" => {
                self.told_length =
                    std::str::from_utf8(value).ok().and_then(|value| value.trim().parse().ok());
                false
            }
            "keep-alive" | "transfer-encoding" | "upgrade" | "proxy-connection" | "trailer" => false,
            _ => true,
        }
    }
}

/// Adds what the server adds.
pub(crate) fn finish(
    connection: &Rc<Connection>,
    status: StatusCode,
    mut headers: HeaderMap,
    content: Content,
    facts: &Facts,
    terms: Terms,
) -> Response<ReplyBody> {
    if connection.hold_reply(content.held()).is_err() {
        drop(content);
        return reject(connection, headers, Rejection::Overload);
    }
    connection.line.set_status(status.as_u16());
    if facts.closes {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let is_bodiless =
        status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED || status.is_informational();
    let is_gzip = terms.accepts_gzip
        && compress::negotiate(
            Some(b"gzip"),
            &Candidate {
                method: &Method::GET,
                version: Version::HTTP_11,
                status,
                headers: &headers,
                len: Some(content.len()),
            },
        );
    // Without room for a compressor it leaves as it is.
    let compressor = is_gzip.then(|| connection.hub.hold_compressor(content.compressor_bytes())).flatten();
    let source = if is_bodiless {
        if let (StatusCode::NOT_MODIFIED, Some(len)) = (status, facts.told_length) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        Source::Empty
    } else if terms.is_head {
        // The length that GET would tell, without the bytes (RFC 9110, 9.3.2).
        let len = match &content {
            Content::Nothing => facts.told_length,
            content if content.len() == 0 => Some(facts.told_length.unwrap_or(0)),
            content => Some(content.len()),
        };
        if let Some(len) = len {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        Source::Empty
    } else if let Some(charge) = compressor {
        compress::mark(&mut headers);
        content.compressed(connection, charge)
    } else {
        content.source()
    };
    let body = ReplyBody { connection: Rc::clone(connection), source };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Makes the answer to a request that is not served.
pub(crate) fn reject(
    connection: &Rc<Connection>,
    mut headers: HeaderMap,
    rejection: Rejection,
) -> Response<ReplyBody> {
    rookery_error::throw(rejection.error());
    connection.enter(Phase::Reply);
    headers.clear();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    if matches!(rejection, Rejection::Busy | Rejection::Overload) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
    }
    let closes = rejection.ends_connection() || connection.is_ending() || connection.has_rest.get();
    let facts = Facts { closes, told_length: None };
    let status = StatusCode::from_u16(rejection.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content = Content::Whole(Bytes::from_static(rejection.text().as_bytes()));
    let terms = Terms { is_head: false, accepts_gzip: false };
    finish(connection, status, headers, content, &facts, terms)
}
