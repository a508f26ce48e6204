//! The Combined Log Format of the access log.

use super::record::{Record, escape_common, push_field};
use crate::logging::digits::push_seconds;

impl Record<'_> {
    /// Appends the record as a line in the Combined Log Format, with the fields that
    /// [`Format::Combined`](super::Format::Combined) describes.
    pub(super) fn write_combined(&self, out: &mut Vec<u8>) {
        self.write_common_fields(out);
        for value in [self.referer, self.user_agent] {
            write_quoted(value, out);
        }
        for time in [Some(self.elapsed), self.queue, self.r] {
            push_field(time, push_seconds, out);
        }
        write_quoted(self.route, out);
        out.push(b'\n');
    }
}

fn write_quoted(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b" \"");
    escape_common(if value.is_empty() { b"-" } else { value }, out);
    out.push(b'"');
}
