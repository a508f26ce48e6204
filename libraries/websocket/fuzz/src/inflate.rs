//! The fuzz target of inflation, which compares it with zlib.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libz_sys as zlib;
use rookery_websocket::protocol::Violation;
use rookery_websocket::protocol::deflate::{Inflater, Takeover};

/// Inflates two compressed messages in chunks of several sizes. The output must be that of zlib;
/// there must be an error if zlib has one or has more output than the limit. Neither the output nor
/// the reserved memory may exceed the limit.
pub fn websocket_inflate(data: &[u8]) {
    let [choice, limit, bytes @ ..] = data else { return };
    let takeover = if choice & 1 == 0 { Takeover::None } else { Takeover::Kept };
    let limit = u64::from(*limit) * 97;
    // There are two messages, so that the second can depend on the window of the first.
    let messages = [&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]];
    let expected = by_zlib(&messages, takeover, limit);
    for size in [usize::MAX, 1, 3, 100] {
        assert_eq!(by_us(&messages, takeover, limit, size), expected, "in pieces of {size}");
    }
}

/// The inflated messages, up to the first that fails.
type Inflated = Vec<Result<Vec<u8>, ()>>;

fn by_us(messages: &[&[u8]], takeover: Takeover, limit: u64, size: usize) -> Inflated {
    let mut inflater = Inflater::new(takeover);
    let mut inflated = Vec::new();
    for message in messages {
        let mut out = Vec::new();
        let mut result = Ok(());
        for piece in message.chunks(size) {
            result = result.and_then(|()| inflater.push(piece, &mut out, limit));
        }
        result = result.and_then(|()| inflater.finish(&mut out, limit));
        assert!(out.len() as u64 <= limit + 1 && out.capacity() as u64 <= 2 * limit + (64 << 10));
        if let Err(violation) = result {
            assert!(matches!(violation, Violation::TooBig | Violation::Inflate));
            inflated.push(Err(()));
            return inflated;
        }
        inflated.push(Ok(out));
    }
    inflated
}

fn by_zlib(messages: &[&[u8]], takeover: Takeover, limit: u64) -> Inflated {
    let mut inflated = Vec::new();
    let mut stream = Stream::new();
    for message in messages {
        if takeover == Takeover::None {
            stream = Stream::new();
        }
        // With the end that senders remove (RFC 7692, 7.2.2).
        let whole = [*message, &[0, 0, 0xFF, 0xFF]].concat();
        let result = stream.inflate(&whole, limit as usize);
        let has_failed = result.is_err();
        inflated.push(result);
        if has_failed {
            break;
        }
    }
    inflated
}

/// A raw deflate stream of zlib with the largest window.
struct Stream(Box<zlib::z_stream>);

impl Stream {
    fn new() -> Stream {
        let mut stream = Box::new(MaybeUninit::<zlib::z_stream>::zeroed());
        let size = size_of::<zlib::z_stream>() as c_int;
        // SAFETY: the stream is zeroed, so zlib uses its own allocator. Version and size are those
        // of the binding.
        let status =
            unsafe { zlib::inflateInit2_(stream.as_mut_ptr(), -15, zlib::zlibVersion(), size) };
        assert_eq!(status, zlib::Z_OK);
        // SAFETY: zlib has initialised the `z_stream`, whose pointer came from a `Box`.
        Stream(unsafe { Box::from_raw(Box::into_raw(stream).cast()) })
    }

    fn inflate(&mut self, mut input: &[u8], limit: usize) -> Result<Vec<u8>, ()> {
        let mut out = Vec::new();
        loop {
            let mut room = [0; 1000];
            self.0.next_in = input.as_ptr().cast_mut();
            self.0.avail_in = input.len() as u32;
            self.0.next_out = room.as_mut_ptr();
            self.0.avail_out = room.len() as u32;
            // SAFETY: the stream is initialised, and both ranges are valid for the call.
            let status = unsafe { zlib::inflate(&mut *self.0, zlib::Z_SYNC_FLUSH) };
            input = &input[input.len() - self.0.avail_in as usize..];
            let produced = room.len() - self.0.avail_out as usize;
            out.extend_from_slice(&room[..produced]);
            if out.len() > limit {
                return Err(());
            }
            match status {
                // This block is marked as final, so a new stream follows.
                zlib::Z_STREAM_END => {
                    // SAFETY: the stream is initialised.
                    let status = unsafe { zlib::inflateReset(&mut *self.0) };
                    assert_eq!(status, zlib::Z_OK);
                }
                zlib::Z_OK | zlib::Z_BUF_ERROR => {}
                _ => return Err(()),
            }
            if input.is_empty() && produced < room.len() {
                return Ok(out);
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is initialised and is not used again.
        unsafe { zlib::inflateEnd(&mut *self.0) };
    }
}
