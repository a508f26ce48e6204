//! The fuzz target of the HTTP/2 frames that are rewritten before h2 reads them.

use rookery_server::frames_for_fuzzer as given;

/// A frame: its type, its flags, its stream and its payload.
type Frame<'a> = (u8, u8, [u8; 4], &'a [u8]);

const CONTINUATION: u8 = 9;

/// Returns the frames at the start of the bytes, and the remaining bytes.
fn frames(mut bytes: &[u8]) -> (Vec<Frame<'_>>, &[u8]) {
    let mut all = Vec::new();
    while let [a, b, c, kind, flags, s1, s2, s3, s4, rest @ ..] = bytes {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let Some((payload, behind)) = rest.split_at_checked(len) else { break };
        all.push((*kind, *flags, [*s1, *s2, *s3, *s4], payload));
        bytes = behind;
    }
    (all, bytes)
}

/// Reads the frames that follow the preface of a connection.
///
/// h2 must get the same bytes for every split of the input. Frames that are not part of a head must
/// be unchanged and in order. The payloads may grow only by the markers of trailers.
pub fn http2_frames(data: &[u8]) {
    let whole = given(data, usize::MAX);
    for size in [1, 2, 8, 9, 10, 100] {
        assert_eq!(given(data, size), whole, "pieces of {size}");
    }
    let others = |bytes| -> Vec<Frame<'_>> {
        frames(bytes).0.into_iter().filter(|frame| !matches!(frame.0, 1 | CONTINUATION)).collect()
    };
    assert!(others(data).starts_with(&others(&whole)), "{data:?}");
    let fields = |bytes| frames(bytes).0.iter().map(|frame| frame.3.len()).sum::<usize>();
    // There is one marker of four bytes for each frame of trailers.
    assert!(fields(&whole) <= fields(data) + 4 * frames(data).0.len());
}
