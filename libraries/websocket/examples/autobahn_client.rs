//! Plays the client in the cases of Autobahn's fuzzing server, whose address is in `AB_URL`.

use rookery_websocket::protocol::DecoderLimits;
use rookery_websocket::protocol::deflate::{DeflateConfig, Takeover};
use rookery_websocket::{ClientConfig, Error, connect};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::var("AB_URL").unwrap_or_else(|_| "ws://127.0.0.1:9002".to_owned());
    let mut config = ClientConfig::default()
        .deflate(DeflateConfig::default().takeover(Takeover::Kept).threshold(0));
    // Section 9 sends 4 MiB in chunks of 64 bytes.
    config.connection.limits = DecoderLimits::new().message(64 << 20).fragments(1 << 20);
    let (mut connection, _) = connect(&format!("{url}/getCaseCount"), &config).await?;
    let count = connection.read().await?;
    let count: u32 = count
        .and_then(|message| message.as_text())
        .and_then(|text| text.parse().ok())
        .expect("a count");
    connection.close_now().await;
    for case in 1..=count {
        // A case may end in any way, because Autobahn judges it.
        let _ = run(&format!("{url}/runCase?case={case}&agent=rookery"), &config).await;
    }
    let (mut connection, _) =
        connect(&format!("{url}/updateReports?agent=rookery"), &config).await?;
    while connection.read().await?.is_some() {}
    Ok(())
}

async fn run(url: &str, config: &ClientConfig) -> Result<(), Error> {
    let (mut connection, _) = connect(url, config).await?;
    while let Some((message, mut writer)) = connection.receive().await? {
        let _ = writer.reply(message).await?;
    }
    Ok(())
}
