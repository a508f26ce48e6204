//! A reader and writer of the parts of DER (X.690) that certificates use.

/// The tags of the DER values that certificates contain (X.680 and X.509).
pub(super) mod tag {
    pub(crate) const BOOLEAN: u8 = 0x01;
    pub(crate) const INTEGER: u8 = 0x02;
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const OID: u8 = 0x06;
    pub(crate) const UTF8_STRING: u8 = 0x0C;
    pub(crate) const UTC_TIME: u8 = 0x17;
    pub(crate) const GENERALIZED_TIME: u8 = 0x18;
    pub(crate) const BMP_STRING: u8 = 0x1E;
    pub(crate) const SEQUENCE: u8 = 0x30;
    pub(crate) const SET: u8 = 0x31;

    /// Returns the DER tag of an implicitly tagged value, which ASN.1 writes as `[number]
    /// IMPLICIT`.
    pub(crate) const fn implicit(number: u8) -> u8 {
        0x80 | number
    }

    /// Returns the DER tag of an explicitly tagged value, which ASN.1 writes as `[number]
    /// EXPLICIT`.
    pub(crate) const fn explicit(number: u8) -> u8 {
        0xA0 | number
    }
}

/// An iterator over consecutive DER values. It ends at malformed data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'a>(pub(super) &'a [u8]);

impl<'a> Values<'a> {
    /// Returns the tag and the content of the next DER value, or `None` at the end or at malformed
    /// data.
    pub(super) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7F => (usize::from(first), rest),
            // 0x80 is only allowed in BER. A length of more than 4 bytes cannot occur in a
            // certificate.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
                (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// Returns the content of the next DER value if its tag is `wanted`. Otherwise returns `None`
    /// and does not consume the value.
    pub(super) fn take(&mut self, wanted: u8) -> Option<&'a [u8]> {
        let mut after = *self;
        let (tag, content) = after.next()?;
        if tag != wanted {
            return None;
        }
        *self = after;
        Some(content)
    }

    /// Returns the next DER value including its tag and length.
    pub(super) fn whole(&mut self) -> Option<&'a [u8]> {
        let before = self.0;
        self.next()?;
        Some(&before[..before.len() - self.0.len()])
    }
}

/// Encodes a DER value from its tag and the parts of its content.
pub(super) fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match u8::try_from(len) {
        Ok(short @ 0..0x80) => out.push(short),
        _ => {
            let bytes = len.to_be_bytes();
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            out.push(0x80 | (bytes.len() - zeros) as u8);
            out.extend_from_slice(&bytes[zeros..]);
        }
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// Formats an object identifier in dotted form, such as `2.5.4.3`.
pub(super) fn dotted(oid: &[u8]) -> String {
    let mut text = String::new();
    let mut arc: u64 = 0;
    for byte in oid {
        arc = arc << 7 | u64::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            if text.is_empty() {
                let first = (arc / 40).min(2);
                text = format!("{first}.{}", arc - first * 40);
            } else {
                text.push('.');
                text.push_str(&arc.to_string());
            }
            arc = 0;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_written_values() {
        for len in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; len];
            let written =
                [value(tag::OCTET_STRING, &[&content]), value(tag::SEQUENCE, &[])].concat();
            let mut values = Values(&written);
            assert_eq!(values.take(tag::SEQUENCE), None);
            assert_eq!(values.take(tag::OCTET_STRING), Some(&content[..]), "{len}");
            assert_eq!(values.whole(), Some(&[tag::SEQUENCE, 0][..]));
            assert_eq!(values.next(), None);
        }
    }

    #[test]
    fn rejects_truncated_values() {
        let written = value(tag::SEQUENCE, &[&[1; 300]]);
        for end in 0..written.len() {
            assert_eq!(Values(&written[..end]).next(), None, "{end}");
        }
        assert_eq!(Values(&[0x30, 0x80, 0, 0]).next(), None, "BER");
        assert_eq!(Values(&[0x30, 0x85, 0, 0, 0, 0, 1, 0]).next(), None);
    }

    #[test]
    fn formats_object_identifiers_in_dotted_form() {
        assert_eq!(dotted(&[0x55, 0x04, 0x03]), "2.5.4.3");
        assert_eq!(
            dotted(&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x09, 0x01]),
            "1.2.840.113549.1.9.1"
        );
        assert_eq!(dotted(&[0x88, 0x37]), "2.999");
    }
}
