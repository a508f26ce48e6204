//! The scenarios with the other libraries, each used in the fastest way that its documentation
//! describes.

use bytes::Bytes;
use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_websockets::{ClientBuilder, Message, ServerBuilder};

use crate::Run;
use crate::transports::{Pipe, Replay, pipe};

pub mod fast {
    use super::*;

    fn open<S>(io: S, role: Role) -> WebSocket<S>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let mut socket = WebSocket::after_handshake(io, role);
        socket.set_writev(false); // its default below 1 KiB
        socket
    }

    pub async fn read_masked(run: &mut Run) {
        let mut socket = open(Replay::new(&crate::masked_512(), 32 << 10, false), Role::Server);
        let mut iterations = run.start();
        while iterations.advance() {
            let frame = socket.read_frame().await.unwrap();
            assert_eq!(frame.payload.len(), 512);
        }
        run.stop(iterations);
    }

    pub async fn write(run: &mut Run) {
        let mut socket = open(Replay::new(&[0x82, 0], 2, false), Role::Server);
        let payload = [7; 512];
        let mut iterations = run.start();
        while iterations.advance() {
            let frame = Frame::binary(Payload::Borrowed(&payload));
            socket.write_frame(frame).await.unwrap();
        }
        run.stop(iterations);
    }

    pub async fn echo(run: &mut Run) {
        let (here, there) = pipe();
        let mut client: WebSocket<Pipe> = open(here, Role::Client);
        let mut server: WebSocket<Pipe> = open(there, Role::Server);
        let payload = [7; 512];
        let serve = async {
            loop {
                let frame = server.read_frame().await.unwrap();
                assert!(frame.opcode == OpCode::Binary);
                server.write_frame(frame).await.unwrap();
            }
        };
        let ask = async {
            let mut iterations = run.start();
            while iterations.advance() {
                client.write_frame(Frame::binary(Payload::Borrowed(&payload))).await.unwrap();
                assert_eq!(client.read_frame().await.unwrap().payload.len(), 512);
            }
            run.stop(iterations);
        };
        tokio::select! { biased; () = ask => {} () = serve => {} }
    }
}

pub mod tokio_ws {
    use super::*;

    pub async fn read_masked(run: &mut Run) {
        let mut socket =
            ServerBuilder::new().serve(Replay::new(&crate::masked_512(), 32 << 10, false));
        let mut iterations = run.start();
        while iterations.advance() {
            let message = socket.next().await.unwrap().unwrap();
            assert_eq!(message.as_payload().len(), 512);
        }
        run.stop(iterations);
    }

    pub async fn write(run: &mut Run) {
        let mut socket = ServerBuilder::new().serve(Replay::new(&[0x82, 0], 2, false));
        // Its messages own their bytes; these are shared and not copied.
        let payload = Bytes::from_static(&[7; 512]);
        let mut iterations = run.start();
        while iterations.advance() {
            socket.send(Message::binary(payload.clone())).await.unwrap();
        }
        run.stop(iterations);
    }

    pub async fn echo(run: &mut Run) {
        let (here, there) = pipe();
        let mut client = ClientBuilder::new().take_over(here);
        let mut server = ServerBuilder::new().serve(there);
        let payload = Bytes::from_static(&[7; 512]);
        let serve = async {
            while let Some(message) = server.next().await {
                server.send(message.unwrap()).await.unwrap();
            }
        };
        let ask = async {
            let mut iterations = run.start();
            while iterations.advance() {
                client.send(Message::binary(payload.clone())).await.unwrap();
                assert_eq!(client.next().await.unwrap().unwrap().as_payload().len(), 512);
            }
            run.stop(iterations);
        };
        tokio::select! { biased; () = ask => {} () = serve => {} }
    }
}

pub mod sync {
    use super::*;
    use tungstenite::protocol::Role;
    use tungstenite::{Message, WebSocket};

    pub fn read_masked(run: &mut Run) {
        let replay = Replay::new(&crate::masked_512(), 32 << 10, false);
        let mut socket = WebSocket::from_raw_socket(replay, Role::Server, None);
        run.measure(|| assert_eq!(socket.read().unwrap().len(), 512));
    }

    pub fn write(run: &mut Run) {
        let replay = Replay::new(&[0x82, 0], 2, false);
        let mut socket = WebSocket::from_raw_socket(replay, Role::Server, None);
        let payload = Bytes::from_static(&[7; 512]);
        run.measure(|| socket.send(Message::Binary(payload.clone())).unwrap());
    }

    pub fn echo(run: &mut Run) {
        let (here, there) = pipe();
        let mut client = WebSocket::from_raw_socket(here, Role::Client, None);
        let mut server = WebSocket::from_raw_socket(there, Role::Server, None);
        let payload = Bytes::from_static(&[7; 512]);
        run.measure(|| {
            client.send(Message::Binary(payload.clone())).unwrap();
            let message = server.read().unwrap();
            server.send(message).unwrap();
            assert_eq!(client.read().unwrap().len(), 512);
        });
    }
}
