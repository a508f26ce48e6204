//! Messages that contain JSON.

use serde_core::{Deserialize, Serialize};

use crate::connection::{Message, OwnedMessage};

impl<'a> Message<'a> {
    /// Parses the message, whether text or binary, as JSON. The result may borrow from the message.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use rookery_websocket::{Config, OwnedMessage, Parts};
    /// let (here, there) = tokio::io::duplex(1024);
    /// let mut client = Parts::client(here).connection(Config::default());
    /// let mut server = Parts::server(there).connection(Config::default());
    /// let _ = client.send(&OwnedMessage::from_json(&("move", [3, 4]))?).await?;
    /// let message = server.read().await?.expect("not closed yet");
    /// assert_eq!(message.parse_json::<(&str, [u8; 2])>()?, ("move", [3, 4]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the message is not JSON, or does not have the form of a `T`.
    pub fn parse_json<T: Deserialize<'a>>(&self) -> Result<T, serde_json::Error> {
        match self.as_text() {
            // Text was already checked to be UTF-8.
            Some(text) => serde_json::from_str(text),
            None => serde_json::from_slice(self.as_bytes()),
        }
    }
}

impl OwnedMessage {
    /// Makes a text message that contains `value` as JSON.
    ///
    /// # Errors
    /// If the `Serialize` implementation fails, or if a map has a key that is not a string.
    pub fn from_json(value: &(impl Serialize + ?Sized)) -> Result<OwnedMessage, serde_json::Error> {
        serde_json::to_string(value).map(OwnedMessage::Text)
    }
}
