#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rookery_fuzz::http::rejected_head::rejected_head(data));
