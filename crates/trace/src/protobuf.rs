//! The encoding of messages in protobuf, as far as OTLP needs it.

/// The numbers of the fields with which `AnyValue` holds a text and an integer.
const TEXT_VALUE: u32 = 1;
const INTEGER_VALUE: u32 = 3;

/// The wire types of protobuf.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

/// Appends a field with a variable-length number. 0 is the default and is left out.
pub(crate) fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        tag(out, field, VARINT);
        varint(out, value);
    }
}

/// Appends a field with a 64-bit number.
pub(crate) fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field with a 32-bit number.
pub(crate) fn fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field with bytes, a text, or an encoded message.
pub(crate) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    delimited(out, field, value.len());
    out.extend_from_slice(value);
}

/// Appends the beginning of a field whose `len` bytes the caller appends.
pub(crate) fn delimited(out: &mut Vec<u8>, field: u32, len: usize) {
    tag(out, field, DELIMITED);
    varint(out, len as u64);
}

/// Returns the length of a field whose value has `len` bytes and whose number is below 16.
pub(crate) fn delimited_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Appends a field with a `KeyValue` whose value is a text.
pub(crate) fn text_attribute(out: &mut Vec<u8>, field: u32, key: &str, value: &str) {
    let any = delimited_len(value.len());
    delimited(out, field, delimited_len(key.len()) + delimited_len(any));
    bytes(out, 1, key.as_bytes());
    delimited(out, 2, any);
    bytes(out, TEXT_VALUE, value.as_bytes());
}

/// Appends a field with a `KeyValue` whose value is an integer.
pub(crate) fn integer_attribute(out: &mut Vec<u8>, field: u32, key: &str, value: u64) {
    let any = 1 + varint_len(value);
    delimited(out, field, delimited_len(key.len()) + delimited_len(any));
    bytes(out, 1, key.as_bytes());
    delimited(out, 2, any);
    // A value within a `oneof` is written even if it is 0.
    tag(out, INTEGER_VALUE, VARINT);
    varint(out, value);
}

fn tag(out: &mut Vec<u8>, field: u32, wire_type: u32) {
    varint(out, u64::from(field << 3 | wire_type));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Returns the number in a field of a message, and `None` if the message is malformed or has no
/// such field. Of several fields with this number, the last one counts.
pub(crate) fn find_number(message: &[u8], field: u32) -> Option<u64> {
    fields(message)
        .filter_map(|(number, value)| match value {
            Value::Number(value) if number == field => Some(value),
            _ => None,
        })
        .last()
}

/// Returns the message or text in a field of a message, and `None` if the message is malformed or
/// has no such field.
pub(crate) fn find_bytes(message: &[u8], field: u32) -> Option<&[u8]> {
    fields(message)
        .filter_map(|(number, value)| match value {
            Value::Bytes(value) if number == field => Some(value),
            _ => None,
        })
        .last()
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message, up to the first that is malformed.
pub(crate) fn fields(mut message: &[u8]) -> impl Iterator<Item = (u32, Value<'_>)> {
    std::iter::from_fn(move || {
        let tag = read_varint(&mut message)?;
        let value = match (tag & 7) as u32 {
            VARINT => Value::Number(read_varint(&mut message)?),
            FIXED64 => Value::Number(u64::from_le_bytes(take(&mut message, 8)?.try_into().ok()?)),
            FIXED32 => {
                Value::Number(u32::from_le_bytes(take(&mut message, 4)?.try_into().ok()?).into())
            }
            DELIMITED => {
                let len = usize::try_from(read_varint(&mut message)?).ok()?;
                Value::Bytes(take(&mut message, len)?)
            }
            _ => return None,
        };
        Some((u32::try_from(tag >> 3).ok()?, value))
    })
}

fn take<'a>(message: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(len)?;
    *message = rest;
    Some(taken)
}

fn read_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let values = [1, 127, 128, 300, 1 << 20, 1 << 35, u64::MAX];
        for value in values {
            let mut out = Vec::new();
            number(&mut out, 3, value);
            fixed64(&mut out, 4, value);
            bytes(&mut out, 16, b"text");
            integer_attribute(&mut out, 9, "key", value);
            let read: Vec<_> = fields(&out).collect();
            assert_eq!(read[..2], [(3, Value::Number(value)), (4, Value::Number(value))]);
            assert_eq!(find_bytes(&out, 16), Some(&b"text"[..]));
            let attribute = find_bytes(&out, 9).unwrap();
            assert_eq!(find_bytes(attribute, 1), Some(&b"key"[..]));
            assert_eq!(find_number(find_bytes(attribute, 2).unwrap(), 3), Some(value));
            assert_eq!(read.len(), 4, "the lengths agree");
        }
        let mut out = Vec::new();
        text_attribute(&mut out, 1, "k", &"v".repeat(1000));
        let any = find_bytes(find_bytes(&out, 1).unwrap(), 2).unwrap();
        assert_eq!(find_bytes(any, 1).unwrap().len(), 1000);
        assert_eq!(out[..4], [10, 0xF1, 7, 10]);
    }

    #[test]
    fn reads_a_malformed_message_without_panicking() {
        for message in [
            &[0x80][..],
            &[0xFF; 11],
            &[10, 200, 1],
            &[9, 1, 2],
            &[13, 1],
            &[11],
            &[10, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F],
        ] {
            assert_eq!(fields(message).count(), 0, "{message:?}");
        }
    }
}
