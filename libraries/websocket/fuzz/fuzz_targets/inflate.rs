#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rookery_websocket_fuzz::websocket_inflate(data));
