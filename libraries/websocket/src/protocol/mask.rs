//! Masking of WebSocket frames (RFC 6455, 5.3): each payload byte is combined by exclusive or with
//! a byte of a four-byte key.

/// The masking key of a frame: four bytes, in the order in which the frame has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskKey(pub [u8; 4]);

impl MaskKey {
    /// Returns the masking key for the bytes after the first `n` bytes of a payload.
    #[must_use]
    pub fn advanced(self, n: usize) -> MaskKey {
        let mut key = self.0;
        key.rotate_left(n % 4);
        MaskKey(key)
    }
}

/// Masks or unmasks `bytes`, a part of a payload that begins at an offset divisible by 4.
///
/// The loop works on eight bytes at a time and is safe code, which the compiler vectorises. From 64
/// bytes on, a version compiled for AVX2 runs if the processor supports it. Shorter payloads, which
/// are the most common, skip the check of the processor.
pub fn unmask(key: MaskKey, bytes: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes.len() >= WIDE_FROM && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as was just checked.
        return unsafe { unmask_avx2(key, bytes) };
    }
    unmask_words(key, bytes);
}

/// The minimum number of bytes for which AVX2 is used to unmask a payload. For fewer bytes, the
/// check of the processor's features would cost more than AVX2 saves.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const WIDE_FROM: usize = 64;

/// Masks or unmasks `bytes` as [`unmask_words`] does, but is compiled for AVX2.
///
/// # Safety
///
/// The processor must support AVX2. (Rust 1.85 allows `#[target_feature]` only on unsafe
/// functions.)
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
unsafe fn unmask_avx2(key: MaskKey, bytes: &mut [u8]) {
    unmask_words(key, bytes);
}

#[inline]
fn unmask_words(key: MaskKey, bytes: &mut [u8]) {
    let half = u32::from_ne_bytes(key.0);
    let word = u64::from(half) << 32 | u64::from(half);
    let mut words = bytes.chunks_exact_mut(8);
    for eight in &mut words {
        let value = u64::from_ne_bytes((&*eight).try_into().expect("a chunk of eight")) ^ word;
        eight.copy_from_slice(&value.to_ne_bytes());
    }
    for (n, byte) in words.into_remainder().iter_mut().enumerate() {
        *byte ^= key.0[n & 3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_phase_agrees_with_the_definition() {
        let key = MaskKey([0x37, 0xfa, 0x21, 0x3d]);
        for len in (0..70).chain(if cfg!(miri) { 0..0 } else { 70..300 }) {
            for phase in 0..4 {
                let plain: Vec<u8> = (0..len).map(|n: usize| (n * 7 + 3) as u8).collect();
                let expected: Vec<u8> = plain
                    .iter()
                    .enumerate()
                    .map(|(n, byte)| byte ^ key.0[(n + phase) % 4])
                    .collect();
                let mut got = plain.clone();
                unmask(key.advanced(phase), &mut got);
                assert_eq!(got, expected, "length {len}, phase {phase}");
                unmask(key.advanced(phase), &mut got);
                assert_eq!(got, plain);
            }
        }
    }
}
