//! The records of the access log for the function `log` of R's `serve()`.

use std::time::UNIX_EPOCH;

use super::record::OwnedRecord;
use crate::logging::digits::{push_address, push_number, push_seconds};

impl OwnedRecord {
    /// Appends the record as a line of fields, as [`Format::Fields`](super::Format::Fields)
    /// describes.
    pub fn write_fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"record\t");
        push_seconds(self.time.duration_since(UNIX_EPOCH).unwrap_or_default(), out);
        out.push(b'\t');
        if let Some(remote) = self.remote {
            push_address(remote.ip(), out);
        }
        for text in [&self.method, &self.path, &self.query] {
            push_text(text, out);
        }
        for number in [self.status.into(), self.bytes] {
            out.push(b'\t');
            push_number(number, out);
        }
        out.push(b'\t');
        push_seconds(self.elapsed, out);
        push_text(&self.request_id, out);
        push_text(self.aborted.map_or("", |reason| reason.name()).as_bytes(), out);
        push_text(&self.route, out);
        for time in [self.queue, self.r] {
            out.push(b'\t');
            if let Some(time) = time {
                push_seconds(time, out);
            }
        }
        out.push(b'\n');
    }
}

/// Appends a tab and a text in which `%`, tabs, line feeds and zero bytes are percent-encoded.
fn push_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'\t');
    for &byte in text {
        match byte {
            b'%' => out.extend_from_slice(b"%25"),
            b'\t' => out.extend_from_slice(b"%09"),
            b'\n' => out.extend_from_slice(b"%0A"),
            0 => out.extend_from_slice(b"%00"),
            other => out.push(other),
        }
    }
}
