//! The body of a response, as hyper and h2 read it.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Frame, SizeHint};
use rookery_exchange::Charge;
use rookery_system::blocking;

use crate::http::request::request_context::RequestContext;
use crate::http::response::body_source::{FileSource, GZIP_CHUNK, GzipSource, GzipStream, Input};
use crate::http::response::compress::{self, Gzip};
use crate::http::response::sendfile::{READ_CHUNK, SentFile};
use crate::http::response::stream::registry::CompressorPermit;
use crate::http::response::stream::response_stream::{NextChunk, ResponseStream};
use crate::static_files::{CachedFile, Headers, Variant};

/// The memory in bytes that a gzip compressor needs for its window, an input chunk and an output
/// chunk.
const COMPRESSOR_BYTES: usize = 512 << 10;

/// The maximum size in bytes of a response body that is compressed on the I/O thread. Compressing
/// it takes 0.1 ms, so passing it to a background thread would save little.
const GZIP_INLINE: usize = 4 << 10;

/// The body of a response. It is dropped when it has been encoded completely or when the connection
/// closes. The request context (the server's data about the request) is dropped with it.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    context: RequestContext,
    source: Source,
}

/// The source that provides the bytes of a response body.
#[derive(Debug)]
pub(crate) enum Source {
    Empty,
    Whole(Bytes),
    /// Bytes that [`compress_body`] must compress before the response head is sent, so that the
    /// head can state the compressed length.
    CompressFirst(Bytes, Charge, Option<Rc<CachedFile>>),
    /// A body that [`compress_body`] must compress only to find the compressed length, for the
    /// response to a HEAD request. The body is not sent.
    MeasureFirst(Box<Source>),
    File(FileSource),
    Gzip(Box<GzipSource>),
    Stream(Rc<ResponseStream>),
    GzipStream(Box<GzipStream>),
}

impl ResponseBody {
    pub(crate) fn new(context: RequestContext, source: Source) -> ResponseBody {
        ResponseBody { context, source }
    }

    /// Returns true if [`compress_body`] must process this body before the response is sent.
    pub(crate) fn needs_compression(&self) -> bool {
        matches!(self.source, Source::CompressFirst(..) | Source::MeasureFirst(..))
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let ResponseBody { context, source } = &mut *self;
        let chunk = match source {
            Source::Empty | Source::MeasureFirst(..) => None,
            Source::Whole(bytes) | Source::CompressFirst(bytes, ..) => {
                let bytes = std::mem::take(bytes);
                *source = Source::Empty;
                context.pending_record().add_bytes(bytes.len());
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Source::File(file) if context.connection.is_http2_stream() => {
                ready!(file.poll_chunk(context.peer(), cx))
            }
            Source::File(file) => {
                let chunk = file.next_placeholder(&context.connection);
                return Poll::Ready(chunk.map(|bytes| {
                    context.pending_record().add_bytes(bytes.len());
                    Ok(Frame::data(bytes))
                }));
            }
            Source::Gzip(gzip) => ready!(gzip.poll_chunk(context.peer(), cx)),
            Source::GzipStream(gzip) => ready!(gzip.poll_chunk(context.peer(), cx)),
            Source::Stream(stream) => match stream.next_chunk() {
                NextChunk::Chunk(bytes) => {
                    context.pending_record().add_bytes(bytes.len());
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                // The next chunk wakes the connection's task.
                NextChunk::Wait => return Poll::Pending,
                NextChunk::CloseState => None,
            },
        };
        if let Some(Ok(bytes)) = &chunk {
            context.pending_record().add_bytes(bytes.len());
        }
        Poll::Ready(chunk.map(|chunk| chunk.map(|bytes| Frame::data(Bytes::from(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty | Source::MeasureFirst(..) => true,
            Source::Whole(bytes) | Source::CompressFirst(bytes, ..) => bytes.is_empty(),
            Source::File(file) => file.left == 0,
            Source::Gzip(gzip) => gzip.is_at_end(),
            Source::GzipStream(gzip) => gzip.is_at_end(),
            Source::Stream(stream) => stream.bytes_left() == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty | Source::MeasureFirst(..) => SizeHint::with_exact(0),
            Source::Whole(bytes) | Source::CompressFirst(bytes, ..) => {
                SizeHint::with_exact(bytes.len() as u64)
            }
            Source::File(file) => SizeHint::with_exact(file.left),
            Source::Gzip(_) | Source::GzipStream(_) => SizeHint::default(),
            Source::Stream(stream) => {
                stream.bytes_left().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}

/// The uncompressed content of a response, such as bytes, a file or a stream.
#[derive(Debug)]
pub(crate) enum Content {
    /// The response has no content. If the request method is HEAD, the response then has no
    /// `Content-Length`.
    Absent,
    Whole(Bytes),
    /// A static file in memory, which also caches its compressed form.
    Ready(Rc<CachedFile>),
    File {
        file: SentFile,
        at: u64,
        len: u64,
    },
    /// A streamed response, which the application produces chunk by chunk.
    Stream(Rc<ResponseStream>),
}

impl Content {
    /// Returns the bytes of the content if all of them are in memory.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Content::Whole(bytes) => Some(bytes),
            Content::Ready(file) => Some(&file.plain().bytes),
            Content::Absent | Content::File { .. } | Content::Stream(_) => None,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Content::Absent | Content::Stream(_) => 0,
            Content::Whole(bytes) => bytes.len() as u64,
            Content::Ready(file) => file.plain().bytes.len() as u64,
            Content::File { len, .. } => *len,
        }
    }

    /// Returns the number of bytes that the response content keeps in memory until it has been
    /// sent.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            // Chunks of a stream are charged when they arrive.
            Content::Absent | Content::Stream(_) => 0,
            Content::Whole(bytes) => bytes.len(),
            Content::Ready(file) => file.plain().bytes.len(),
            Content::File { .. } => READ_CHUNK,
        }
    }

    /// Returns true if the response content is compressed as a whole before the head is sent, so
    /// that the head can state the compressed length.
    pub(crate) fn is_compressed_whole(&self) -> bool {
        matches!(self, Content::Whole(_) | Content::Ready(_)) && self.held_bytes() <= GZIP_CHUNK
    }

    /// Returns how much additional memory, in bytes, is needed to compress the content.
    pub(crate) fn compressor_bytes(&self) -> usize {
        let len = match self {
            Content::Absent => 0,
            Content::Whole(bytes) => bytes.len(),
            Content::Ready(file) => file.plain().bytes.len(),
            Content::File { .. } | Content::Stream(_) => return COMPRESSOR_BYTES,
        };
        if len <= GZIP_INLINE {
            0
        } else if len <= GZIP_CHUNK {
            len
        } else {
            COMPRESSOR_BYTES
        }
    }

    pub(crate) fn into_source(self) -> Source {
        match self {
            Content::Absent => Source::Empty,
            Content::Whole(bytes) if bytes.is_empty() => Source::Empty,
            Content::Whole(bytes) => Source::Whole(bytes),
            Content::Ready(file) => Content::Whole(file.plain().bytes.clone()).into_source(),
            Content::File { file, at, len } => Source::File(FileSource::new(file, at, len)),
            Content::Stream(stream) => Source::Stream(stream),
        }
    }

    /// Returns the source of the compressed response body. Very small content is compressed
    /// immediately by `gzip`. Other content gets a compressor of its own, for which `charge` is the
    /// memory charge. A streamed response is compressed only if there is a `permit`.
    pub(crate) fn into_compressed_source(
        self,
        gzip: &RefCell<Option<Gzip>>,
        charge: Charge,
        permit: Option<CompressorPermit>,
    ) -> Source {
        let (content, ready) = match self {
            Content::Ready(file) => (Content::Whole(file.plain().bytes.clone()), Some(file)),
            content => (content, None),
        };
        let input = match content {
            Content::Absent | Content::Ready(_) => return Source::Empty,
            Content::Stream(stream) => {
                return match permit {
                    Some(permit) => {
                        Source::GzipStream(Box::new(GzipStream::new(stream, charge, permit)))
                    }
                    None => Source::Stream(stream),
                };
            }
            Content::Whole(bytes) if bytes.len() <= GZIP_INLINE => {
                let bytes = gzip_bytes(&mut gzip.borrow_mut(), &bytes);
                cache_gzip(ready, &bytes);
                return Source::Whole(bytes);
            }
            Content::Whole(bytes) if bytes.len() <= GZIP_CHUNK => {
                return Source::CompressFirst(bytes, charge, ready);
            }
            Content::Whole(bytes) => Input::Whole(bytes),
            Content::File { file, at, len } => Input::File { file: Arc::new(file), at, left: len },
        };
        Source::Gzip(Box::new(GzipSource::new(input, charge)))
    }
}

thread_local! {
    /// The gzip compressor that a background thread keeps for reuse until the thread ends.
    static THREAD_GZIP: RefCell<Option<Gzip>> = const { RefCell::new(None) };
}

/// Compresses a response body on a background thread before its head is sent, so that the head can
/// state the compressed length.
pub(crate) async fn compress_body(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let ResponseBody { context, source } = response.body_mut();
    let is_head = matches!(source, Source::MeasureFirst(..));
    let plain = match std::mem::replace(source, Source::Empty) {
        Source::MeasureFirst(plain) => *plain,
        plain => plain,
    };
    if let Source::CompressFirst(bytes, charge, ready) = plain {
        let plain = bytes.clone();
        let work = move || {
            let out = THREAD_GZIP.with_borrow_mut(|state| gzip_bytes(state, &plain));
            drop(charge);
            Ok(out)
        };
        let bytes = match blocking::start_for(context.peer(), work).await {
            Ok(bytes) => bytes,
            // If no thread is available, the body is compressed here.
            Err(_) => gzip_bytes(&mut context.shared().gzip.borrow_mut(), &bytes),
        };
        cache_gzip(ready, &bytes);
        if is_head {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        } else {
            *source = Source::Whole(bytes);
        }
    }
    response
}

/// Stores the compressed content of a static file in the file cache.
fn cache_gzip(file: Option<Rc<CachedFile>>, bytes: &Bytes) {
    let Some(file) = file else { return };
    let mut headers: HeaderMap = file.plain().headers.iter().cloned().collect();
    compress::mark(&mut headers);
    // The copy has no unused capacity.
    let bytes = Bytes::copy_from_slice(bytes);
    file.keep_gzip(Variant { headers: header_lines(&headers), bytes });
}

/// Returns response headers in the format that the file cache uses.
pub(crate) fn header_lines(headers: &HeaderMap) -> Headers {
    headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn gzip_bytes(state: &mut Option<Gzip>, bytes: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(bytes.len() / 2 + 64);
    state.get_or_insert_default().compress(bytes, &mut out);
    out.into()
}
