use std::io::Read;

use flate2::read::GzDecoder;

use super::*;

fn decode(gzip: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut decoder = GzDecoder::new(gzip);
    decoder.read_to_end(&mut out).unwrap();
    assert!(decoder.into_inner().is_empty(), "one stream and nothing after it");
    out
}

/// Returns pseudo-random bytes, the same in each run, that cannot be compressed.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(step).collect()
}

#[test]
fn parses_accept_encoding() {
    for (value, expected) in [
        ("gzip", true),
        ("gzip, deflate, br, zstd", true),
        ("GZIP", true),
        ("x-gzip", true),
        ("deflate,gzip;q=0.5", true),
        ("gzip ; q=0.001", true),
        ("*", true),
        ("br, *;q=0.1", true),
        ("gzip;q=0", false),
        ("gzip;q=0.0, *", false),
        ("gzip;q=0, x-gzip;q=1", true),
        ("gzip;q=nonsense", false),
        ("gzip;q=-1", false),
        ("gzip;q=1.000", true),
        ("gzip;q=1.001", false),
        ("gzip;q=0.0001", false),
        ("gzip;q=0.", false),
        ("gzip;q=1.", true),
        ("gzip;q=", false),
        ("gzip;Q=0", false),
        ("gzip;level=6;q=0", false),
        ("identity", false),
        ("identity;q=1, *;q=0", false),
        ("identity;q=1, gzip;q=0.5", false),
        ("identity;q=0.5, gzip;q=1.0", true),
        ("identity;q=0, gzip", true),
        ("deflate, br", false),
        ("gzipped", false),
        ("notgzip", false),
        ("", false),
        (",;,;q", false),
    ] {
        assert_eq!(accepts_gzip(value.as_bytes()), expected, "{value:?}");
    }
}

#[test]
fn skips_types_that_are_already_compressed() {
    for (kind, expected) in [
        ("text/html; charset=utf-8", true),
        ("TEXT/CSS", true),
        ("text/javascript", true),
        ("application/json", true),
        ("application/vnd.api+json", true),
        ("application/wasm", true),
        ("image/svg+xml", true),
        ("image/vnd.microsoft.icon", true),
        ("font/ttf", true),
        ("multipart/mixed", true),
        ("nonsense", true),
        ("", true),
        ("text/event-stream; charset=utf-8", false),
        ("image/png", false),
        ("IMAGE/JPEG", false),
        ("video/mp4", false),
        ("audio/ogg", false),
        ("font/woff2", false),
        ("application/zip", false),
        ("application/octet-stream", false),
        ("application/epub+zip", false),
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", false),
    ] {
        assert_eq!(is_compressible(kind.as_bytes()), expected, "{kind:?}");
    }
}

#[test]
fn compresses_only_responses_with_suitable_framing() {
    let plain = HeaderMap::new();
    let with = |name: http::HeaderName, value| {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    };
    let (identity, png) = (with(CONTENT_ENCODING, "identity"), with(CONTENT_TYPE, "image/png"));
    let base = Candidate {
        method: &Method::GET,
        version: Version::HTTP_11,
        status: StatusCode::OK,
        headers: &plain,
        len: Some(1000),
    };
    for (candidate, expected) in [
        (base, true),
        (Candidate { len: None, ..base }, true),
        (Candidate { len: Some(1), ..base }, true),
        (Candidate { method: &Method::POST, ..base }, true),
        (Candidate { status: StatusCode::NOT_FOUND, ..base }, true),
        (Candidate { len: Some(0), ..base }, false),
        (Candidate { method: &Method::HEAD, ..base }, false),
        (Candidate { version: Version::HTTP_10, ..base }, false),
        (Candidate { headers: &identity, ..base }, false),
        (Candidate { headers: &png, ..base }, false),
        (Candidate { status: StatusCode::SWITCHING_PROTOCOLS, ..base }, false),
        (Candidate { status: StatusCode::NO_CONTENT, ..base }, false),
        (Candidate { status: StatusCode::NOT_MODIFIED, ..base }, false),
        (Candidate { status: StatusCode::PARTIAL_CONTENT, ..base }, false),
    ] {
        assert_eq!(negotiate(Some(b"gzip"), &candidate), expected, "{candidate:?}");
        assert!(!negotiate(None, &candidate));
        assert!(!negotiate(Some(b"br"), &candidate));
    }
}

#[test]
fn adapts_headers_to_the_compressed_form() {
    let lines = [
        ("content-length", "5"),
        ("accept-ranges", "bytes"),
        ("etag", "\"a-1\""),
        ("x-other", "1"),
    ];
    let mut headers: HeaderMap = lines
        .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)))
        .into_iter()
        .collect();
    mark(&mut headers);
    let seen = |headers: &HeaderMap, name: &str| -> Vec<String> {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap().into()).collect()
    };
    for (name, expected) in [
        ("content-length", &[][..]),
        ("accept-ranges", &[]),
        ("etag", &["W/\"a-1\""]),
        ("content-encoding", &["gzip"]),
        ("vary", &["Accept-Encoding"]),
        ("x-other", &["1"]),
    ] {
        assert_eq!(seen(&headers, name), expected, "{name}");
    }
    mark(&mut headers);
    assert_eq!(
        (seen(&headers, "etag"), seen(&headers, "vary").len()),
        (vec!["W/\"a-1\"".into()], 1)
    );

    for (given, expected) in [
        ("Origin", &["Origin", "Accept-Encoding"][..]),
        ("Origin, ACCEPT-Encoding", &["Origin, ACCEPT-Encoding"]),
        ("*", &["*"]),
    ] {
        let mut headers = HeaderMap::from_iter([(VARY, HeaderValue::from_str(given).unwrap())]);
        mark(&mut headers);
        assert_eq!(seen(&headers, "vary"), expected);
    }
}

#[test]
fn decompression_restores_bodies_of_any_chunking() {
    let text = b"The quick brown fox jumps over the lazy dog. ".repeat(3000);
    let noise = noise(100_000);
    let mut gzip = Gzip::new();
    for body in [&b""[..], b"x", &text, &noise, &vec![0; 200_000]] {
        let mut whole = Vec::new();
        gzip.compress(body, &mut whole);
        assert!(decode(&whole) == body, "{} bytes at once", body.len());
        for size in [1000, 7919, 65_536] {
            let mut out = Vec::new();
            body.chunks(size).for_each(|chunk| gzip.push(chunk, &mut out));
            gzip.finish(&mut out);
            assert!(decode(&out) == body, "{} bytes by {size}", body.len());
        }
        let mut tight = Vec::with_capacity(1);
        body.chunks(1 << 15).for_each(|chunk| {
            tight.shrink_to_fit();
            gzip.push(chunk, &mut tight);
        });
        tight.shrink_to_fit();
        gzip.finish(&mut tight);
        assert!(decode(&tight) == body, "{} bytes with no room", body.len());
    }
    let mut out = Vec::new();
    gzip.compress(&text, &mut out);
    assert!(out.len() * 100 < text.len(), "{} of {}", out.len(), text.len());
    out.clear();
    gzip.compress(&noise, &mut out);
    assert!(out.len() < noise.len() + noise.len() / 1000 + 64, "{} of {}", out.len(), noise.len());
}

#[test]
fn flushed_data_can_be_decoded() {
    let mut gzip = Gzip::new();
    let mut out = b"head".to_vec();
    let mut sent = Vec::new();
    for round in 0..100 {
        let event = format!("event {round}\n");
        sent.extend_from_slice(event.as_bytes());
        gzip.push(event.as_bytes(), &mut out);
        gzip.flush(&mut out);
        let mut seen = vec![0; sent.len()];
        GzDecoder::new(&out[4..]).read_exact(&mut seen).unwrap();
        assert_eq!(seen, sent);
    }
    // The output exceeds the free space, so `flush` must continue until all output is written.
    for event in noise(400_000).chunks(50_000) {
        sent.extend_from_slice(event);
        out.shrink_to_fit();
        gzip.push(event, &mut out);
        gzip.flush(&mut out);
        let mut seen = vec![0; sent.len()];
        GzDecoder::new(&out[4..]).read_exact(&mut seen).unwrap();
        assert!(seen == sent, "{} bytes", sent.len());
    }
    gzip.finish(&mut out);
    assert_eq!(&out[..4], b"head", "appended to");
    assert_eq!(decode(&out[4..]), sent);
}
