#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rookery_fuzz::http::http2_frames::http2_frames(data));
