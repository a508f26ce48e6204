//! Static files: from a request's head to the reply, when the application is not asked.

use std::rc::Rc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use crate::connection::Connection;
use crate::job::Job;
use crate::rejection::Rejection;
use crate::reply::{self, Content, Facts, ReplyBody, Terms};
use crate::static_files::{BodyFraming, Decision, Found, Header, RequestHead, error_body};

/// Files up to here are read where they are opened, and leave in one write with their head.
const WHOLE: u64 = 64 << 10;

/// Answers from the files, or leaves the request to the application.
pub(crate) async fn answer(
    connection: &Rc<Connection>,
    head: &Parts,
    has_body: bool,
    terms: Terms,
) -> Option<Response<ReplyBody>> {
    let request = RequestHead {
        method: head.method.as_str(),
        target: head.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes(),
        is_upgrade: false,
        body: framing(&head.headers),
        headers: &head.headers,
    };
    let found = match connection.site.files.decide(&request) {
        Decision::Application => return None,
        Decision::Refuse(status) => {
            connection.has_rest.set(has_body);
            Found::Status { status, headers: Vec::new() }
        }
        Decision::Open(lookup) => {
            let charge = match connection.hub.hold_lookup() {
                Ok(charge) => charge,
                Err(rejection) => {
                    connection.has_rest.set(has_body);
                    return Some(reply::reject(connection, HeaderMap::new(), rejection));
                }
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
                    return Some(finish(connection, status, headers, Content::Whole(bytes.into()), terms));
                }
                Err(_) => return Some(reply::reject(connection, HeaderMap::new(), Rejection::Application)),
            }
        }
    };
    let (status, headers, content) = match found {
        Found::Application => return None,
        Found::File { file, offset, len, status, headers } => {
            (status, headers, Content::File { file, at: offset, len })
        }
        Found::NotModified { headers } => (StatusCode::NOT_MODIFIED, headers, Content::Whole(Bytes::new())),
        Found::Status { status, headers } => {
            (status, headers, Content::Whole(Bytes::from_static(error_body(status).as_bytes())))
        }
    };
    Some(finish(connection, status, headers, content, terms))
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
    connection: &Rc<Connection>,
    status: StatusCode,
    given: Vec<Header>,
    content: Content,
    terms: Terms,
) -> Response<ReplyBody> {
    let mut headers = HeaderMap::with_capacity(given.len() + 2);
    for header in given {
        let (name, value) = header.into_http();
        headers.append(name, value);
    }
    let closes = connection.is_ending() || connection.has_rest.get();
    reply::finish(connection, status, headers, content, &Facts { closes, told_length: None }, terms)
}
