//! Functions that sort the headers of a request by name and join headers with the same name.

use rookery_arena::Arena;

use super::arena_slice::ArenaSlice;
use super::header_names::StoredHeader;

/// The maximum number of request headers that are sorted by insertion. For 32 headers, insertion
/// sort makes about 256 moves on average.
const INSERTION_SORT_MAX: usize = 32;

/// Sorts request headers by name and joins those with the same name. The caller can skip this
/// function if the names are distinct and already sorted.
pub(super) fn sort_and_join(headers: &mut Vec<StoredHeader>, arena: &Arena) {
    // SAFETY: the slices belong to this exchange (or are static), and nothing is reset during the
    // call.
    let name = |header: &StoredHeader| unsafe { header.name.bytes::<'static>() };
    // Insertion sort is stable, needs no memory, and takes linear time on nearly sorted headers.
    // For more than a few dozen headers, the buffer of the standard library's stable sort is the
    // smaller cost.
    if headers.len() <= INSERTION_SORT_MAX {
        for end in 1..headers.len() {
            let mut at = end;
            while at > 0 && name(&headers[at]) < name(&headers[at - 1]) {
                headers.swap(at, at - 1);
                at -= 1;
            }
        }
    } else {
        headers.sort_by(|a, b| name(a).cmp(name(b)));
    }
    let mut kept = 0;
    let mut next = 0;
    while next < headers.len() {
        let first = headers[next];
        let run = headers[next..].iter().take_while(|header| name(header) == name(&first)).count();
        let joined = match run {
            1 => first.value,
            _ => join(arena, &headers[next..next + run], name(&first) == b"cookie"),
        };
        headers[kept] = StoredHeader { value: joined, ..first };
        kept += 1;
        next += run;
    }
    headers.truncate(kept);
}

/// Joins the values of request headers with the same name, leaving out empty values. `is_cookie`
/// selects the separator `; ` instead of `,`.
fn join(arena: &Arena, lines: &[StoredHeader], is_cookie: bool) -> ArenaSlice {
    let separator: &[u8] = if is_cookie { b"; " } else { b"," };
    let filled = || lines.iter().filter(|line| line.value.len() > 0);
    let count = filled().count();
    let bytes: usize = filled().map(|line| line.value.len()).sum();
    if count == 0 {
        return ArenaSlice::EMPTY;
    }
    let out = arena.alloc_slice_fill(bytes + separator.len() * (count - 1), 0u8);
    let mut at = 0;
    for line in filled() {
        if at > 0 {
            out[at..at + separator.len()].copy_from_slice(separator);
            at += separator.len();
        }
        // SAFETY: the slice belongs to the exchange that owns this arena.
        let value = unsafe { line.value.bytes() };
        out[at..at + value.len()].copy_from_slice(value);
        at += value.len();
    }
    ArenaSlice::of(out)
}
