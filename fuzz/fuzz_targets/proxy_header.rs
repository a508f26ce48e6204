#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rookery_fuzz::proxy_header::proxy_header(data));
