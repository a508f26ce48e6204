#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rookery_fuzz::http::request_line::request_line(data));
