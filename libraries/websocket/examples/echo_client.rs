//! Checks an echo server: `echo_client URL plain|deflate CONNECTIONS BYTES`
//!
//! Sends messages of the lengths at which the frame header changes and one of `BYTES` bytes, as
//! text and as binary data. Then opens that many connections at once. Prints `ok`.

use rookery_websocket::protocol::deflate::{DeflateConfig, Takeover};
use rookery_websocket::protocol::{CloseCode, DecoderLimits};
use rookery_websocket::{ClientConfig, Config, Connection, Error, Kind, Outgoing, connect};
use tokio::net::TcpStream;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, mode, connections, bytes] = &arguments[..] else {
        return Err("echo_client URL plain|deflate CONNECTIONS BYTES".into());
    };
    let (connections, bytes): (usize, usize) = (connections.parse()?, bytes.parse()?);
    let limits = DecoderLimits::new().message(65 << 20).fragments(1 << 20);
    let kept = DeflateConfig::default().takeover(Takeover::Kept);
    let config = ClientConfig::default()
        .deflate((mode == "deflate").then_some(kept))
        .connection(Config::default().limits(limits));
    let (mut connection, established) = connect(url, &config).await?;
    assert_eq!(established.deflate.is_some(), mode == "deflate", "what was agreed on");
    for len in [0, 1, 125, 126, 127, 65_535, 65_536, 1 << 20, bytes] {
        let text: String = "The quick brown fox jümps. ".chars().cycle().take(len).collect();
        let text = &text[..text.floor_char_boundary_of(len)];
        echo(&mut connection, Outgoing::Text(text)).await?;
        let noise: Vec<u8> = (0..len).map(|n| ((n * n) >> 3) as u8).collect();
        echo(&mut connection, Outgoing::Binary(&noise)).await?;
    }
    let ending = connection.close(CloseCode::NORMAL, "done").await?;
    assert!(ending.is_clean && ending.code == Some(CloseCode::NORMAL), "{ending:?}");

    let mut many = Vec::new();
    for _ in 0..connections {
        many.push(connect(url, &config).await?.0);
    }
    for n in 0..3 {
        for connection in &mut many {
            echo(connection, Outgoing::Binary(&[n; 700])).await?;
        }
    }
    for connection in &mut many {
        connection.close(CloseCode::GOING_AWAY, "").await?;
    }
    println!("ok");
    Ok(())
}

/// Does what `str::floor_char_boundary` does, which the oldest supported standard library does not
/// have.
trait FloorCharBoundary {
    fn floor_char_boundary_of(&self, at: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_of(&self, at: usize) -> usize {
        (0..=at.min(self.len())).rev().find(|at| self.is_char_boundary(*at)).unwrap_or_default()
    }
}

async fn echo(connection: &mut Connection<TcpStream>, message: Outgoing<'_>) -> Result<(), Error> {
    let (expected, kind) = match message {
        Outgoing::Text(text) => (text.as_bytes(), Kind::Text),
        Outgoing::Binary(bytes) => (bytes, Kind::Binary),
        _ => unreachable!("only these are sent here"),
    };
    let _ = connection.send(message).await?;
    let read = connection.read().await?.ok_or(Error::Closed)?;
    assert_eq!((read.kind(), read.len()), (kind, expected.len()));
    assert!(&read[..] == expected, "not what was sent");
    Ok(())
}
