//! The fuzz target of the request lines whose query is percent-encoded before hyper reads them.

/// Encodes the query of a request head. The bytes that hyper reads must differ from `head` only in
/// the query of the first line, in which `"`, `<` and `>` are percent-encoded.
pub fn request_line(head: &[u8]) {
    let Some((read, query)) = rookery_server::encode_query_for_fuzzer(head) else { return };
    let start = head.iter().zip(&read).take_while(|(sent, read)| sent == read).count();
    let blank = head.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let line_end = blank + head[blank..].iter().position(|byte| *byte == b'\n').expect("a line");
    assert!(start < line_end, "the first change is in the first line");
    let target = blank + head[blank..start].iter().position(|byte| *byte == b' ').expect("a space");
    let mark = head[target..start].iter().position(|byte| *byte == b'?').expect("a query");
    let query_start = target + mark + 1;

    let mut encoded = Vec::new();
    for byte in &query {
        match byte {
            b'"' => encoded.extend(b"%22"),
            b'<' => encoded.extend(b"%3C"),
            b'>' => encoded.extend(b"%3E"),
            byte => encoded.push(*byte),
        }
    }
    assert_ne!(encoded, query);
    assert!(query.iter().all(|byte| *byte > b' '));
    let sent = [&head[..query_start], &query, &head[query_start + query.len()..]].concat();
    assert_eq!(sent, head);
    let expected = [&head[..query_start], &encoded, &head[query_start + query.len()..]].concat();
    assert_eq!(read, expected);
}
