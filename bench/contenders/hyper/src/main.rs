//! hyper by itself: the lower bound without R of the `r-http` group.
//!
//! One thread runs hyper's http1 connection as the server crate configures it (`TCP_NODELAY`,
//! half-close, no timer, and up to 2,000 header lines where the workload needs them), and sends the
//! same bytes as the R handlers. There are no routes.
//!
//! Command line: `rookery-bench-hyper <port> <workload>` with `hello`, `headers`, `json` or `post`.

use std::convert::Infallible;
use std::env;
use std::error::Error;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Copy)]
enum Workload {
    Hello,
    Json,
    Post,
}

async fn answer(
    request: Request<Incoming>,
    workload: Workload,
    json: Bytes,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, incoming) = request.into_parts();
    let (media_type, body) = match workload {
        Workload::Hello => ("text/plain", Bytes::from_static(b"Hello, World!")),
        Workload::Json => ("application/json", json),
        Workload::Post => {
            let size = match incoming.collect().await {
                Ok(body) => body.to_bytes().len(),
                Err(_) => 0,
            };
            ("text/plain", Bytes::from(size.to_string()))
        }
    };
    let mut response = Response::new(Full::new(body));
    // The response reuses the map of the request. A new map would be two allocations, which a
    // careful server avoids.
    let mut headers = parts.headers;
    headers.clear();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    *response.headers_mut() = headers;
    Ok(response)
}

async fn serve(stream: TcpStream, workload: Workload, many_headers: bool, json: Bytes) {
    let mut builder = http1::Builder::new();
    // As in crates/server. Without it hyper checks for the end of the stream during each response
    // and reserves a fresh buffer of 8 KiB for that, which is two allocations per request.
    builder.half_close(true);
    if many_headers {
        builder.max_headers(2000);
    }
    let service = service_fn(move |request| answer(request, workload, json.clone()));
    // The generator closes its connections at the end of each sample, so such errors are ignored.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let port: u16 = arguments.next().ok_or("which port?")?.parse()?;
    let name = arguments.next().ok_or("which workload?")?;
    let workload = match name.as_str() {
        "hello" | "headers" => Workload::Hello,
        "json" => Workload::Json,
        "post" => Workload::Post,
        other => return Err(format!("no workload {other}").into()),
    };
    let json = Bytes::from(vec![b' '; 10_240]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve(stream, workload, name == "headers", json.clone()));
    }
}
