//! Static files: from a request's head to the reply, when the application is not asked.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use rookery_exchange::Share;

use super::call::Call;
use super::reply::{self, Framing, ReplyForm};
use super::reply_body::{Content, ReplyBody};
use crate::blocking::job::Job;
use crate::rejection::Rejection;
use crate::static_files::{BodyFraming, Decision, Found, Header, RequestHead, error_body};

/// Files up to here are read where they are opened, and leave in one write with their head.
const WHOLE: u64 = 64 << 10;

/// A target, its folder's options and the conditions of a request, which wait with it for a thread.
const LOOKUP_BYTES: usize = 1 << 10;

/// Answers from the files, or gives the call back: it is the application's.
pub(super) async fn answer(
    mut call: Call,
    head: &Parts,
    has_body: bool,
    form: ReplyForm,
) -> Result<Response<ReplyBody>, Call> {
    call.replies();
    let request = RequestHead {
        method: head.method.as_str(),
        target: head.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes(),
        is_upgrade: false,
        body: framing(&head.headers),
        headers: &head.headers,
    };
    let found = match call.connection.site.files.decide(&request) {
        Decision::Application => return Err(call),
        Decision::Refuse(status) => {
            call.leaves_rest(has_body);
            Found::Status { status, headers: Vec::new() }
        }
        Decision::Open(lookup) => {
            let Some(charge) = call.http().peers.hold(Share::Requests, LOOKUP_BYTES) else {
                call.leaves_rest(has_body);
                return Ok(reply::reject(call, HeaderMap::new(), Rejection::Overload));
            };
            let found = Job::start(move || {
                let found = read_small(lookup.open());
                drop(charge);
                found
            });
            match found.await {
                Ok((found, None)) => found,
                Ok((found, Some(bytes))) => {
                    let (status, headers) = parts_of(found);
                    return Ok(finish(call, status, headers, Content::Whole(bytes.into()), form));
                }
                Err(_) => return Ok(reply::reject(call, HeaderMap::new(), Rejection::Application)),
            }
        }
    };
    let (status, headers, content) = match found {
        Found::Application => return Err(call),
        Found::File { file, offset, len, status, headers } => {
            (status, headers, Content::File { file, at: offset, len })
        }
        Found::NotModified { headers } => (StatusCode::NOT_MODIFIED, headers, Content::Whole(Bytes::new())),
        Found::Status { status, headers } => {
            (status, headers, Content::Whole(Bytes::from_static(error_body(status).as_bytes())))
        }
    };
    Ok(finish(call, status, headers, content, form))
}

fn framing(headers: &HeaderMap) -> BodyFraming {
    if headers.contains_key(http::header::TRANSFER_ENCODING) {
        return BodyFraming::Chunked;
    }
    let len = headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    len.map_or(BodyFraming::Absent, BodyFraming::Length)
}

/// Reads a small file while its thread is ours already.
fn read_small(found: Found) -> std::io::Result<(Found, Option<Vec<u8>>)> {
    if let Found::File { file, offset, len, .. } = &found {
        if *len <= WHOLE {
            let mut bytes = vec![0; *len as usize];
            std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, *offset)?;
            return Ok((found, Some(bytes)));
        }
    }
    Ok((found, None))
}

fn parts_of(found: Found) -> (StatusCode, Vec<Header>) {
    match found {
        Found::File { status, headers, .. } | Found::Status { status, headers } => (status, headers),
        Found::NotModified { headers } => (StatusCode::NOT_MODIFIED, headers),
        Found::Application => (StatusCode::NOT_FOUND, Vec::new()),
    }
}

fn finish(
    call: Call,
    status: StatusCode,
    given: Vec<Header>,
    content: Content,
    form: ReplyForm,
) -> Response<ReplyBody> {
    let mut headers = HeaderMap::with_capacity(given.len() + 2);
    for header in given {
        let (name, value) = header.into_http();
        headers.append(name, value);
    }
    let framing = Framing { closes: call.connection.closes_after_reply(), told_length: None };
    reply::finish(call, status, headers, content, &framing, form)
}
