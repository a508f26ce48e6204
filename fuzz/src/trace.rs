//! The fuzz targets of the headers of W3C Trace Context.

use rookery_exchange::{TraceContext, is_trace_state};

/// Checks that a valid `traceparent` is written as it was read, apart from parts of later versions,
/// and that a `tracestate` stays valid where it is divided between members.
pub fn trace_context(data: &[u8]) {
    if let Some(context) = TraceContext::parse(data) {
        assert!(data.len() >= 55 && !data.starts_with(b"ff"));
        assert!(context.trace_id != [0; 16] && context.span_id != [0; 8]);
        let written = context.to_header();
        assert_eq!(&written[2..], &data[2..55]);
        assert_eq!(TraceContext::parse(&written), Some(context));
        assert_eq!(&written[3..35], &context.trace_id_text());
        assert!(!data.starts_with(b"00") || data.len() == 55);
    }
    if is_trace_state(data) {
        assert!(data.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~')));
        let members = data.split(|byte| *byte == b',').filter(|it| !it.trim_ascii().is_empty());
        assert!((1..=32).contains(&members.clone().count()));
        assert!(members.into_iter().all(is_trace_state));
    }
}
