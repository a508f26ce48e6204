//! Rookery websocket.
