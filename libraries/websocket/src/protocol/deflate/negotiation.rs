//! The negotiation of the parameters of permessage-deflate (RFC 7692, 7.1), by clients and servers.

use std::fmt;

use crate::protocol::Role;
use crate::protocol::extensions::{Extension, Extensions};

/// The base-two logarithm of the size of a compression window, from 8 to 15.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WindowBits(u8);

impl WindowBits {
    /// The largest compression window: 15 bits, which is 32 KiB.
    pub const MAX: WindowBits = WindowBits(15);

    /// Returns the window size of `bits` bits if RFC 7692 allows it.
    pub fn new(bits: u8) -> Option<WindowBits> {
        (8..=15).contains(&bits).then_some(WindowBits(bits))
    }

    /// Returns the window size in bits.
    pub fn get(self) -> u8 {
        self.0
    }
}

/// Context takeover: whether the compression of a message may refer to earlier messages (RFC 7692,
/// 7.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takeover {
    /// No context takeover: each message is compressed by itself, with a compressor that is
    /// borrowed from a thread-local pool.
    None,
    /// Context takeover: each connection has a compression state of its own. Its window is kept for
    /// the next message, which improves the compression.
    Kept,
}

/// A compression level, from 1 (fastest) to 9 (smallest output).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(u8);

impl Level {
    /// Returns the compression level with this number if it exists.
    pub fn new(level: u8) -> Option<Level> {
        (1..=9).contains(&level).then_some(Level(level))
    }

    pub(super) fn get(self) -> u8 {
        self.0
    }
}

/// The configuration of compression (permessage-deflate) for one side of a WebSocket connection.
///
/// ```
/// use rookery_websocket::protocol::deflate::{DeflateConfig, Takeover, WindowBits};
/// let config = DeflateConfig::default().own_takeover(Takeover::Kept).threshold(0);
/// assert_eq!((config.threshold, config.own_bits), (0, WindowBits::MAX));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeflateConfig {
    /// Whether the compression of the messages that this side sends may refer to earlier messages
    /// (context takeover). Default: [`Takeover::None`].
    pub own_takeover: Takeover,
    /// Whether the compression of the messages that the peer sends may refer to earlier messages
    /// (context takeover). Default: [`Takeover::None`].
    pub peer_takeover: Takeover,
    /// The largest compression window for the messages that this side sends. Default: 15 bits.
    pub own_bits: WindowBits,
    /// The largest compression window for the messages that the peer sends. Default: 15 bits.
    pub peer_bits: WindowBits,
    /// The compression level. Default: 2.
    pub level: Level,
    /// The minimum length in bytes of a message that is compressed. Default: 512.
    pub threshold: usize,
}

impl Default for DeflateConfig {
    fn default() -> DeflateConfig {
        DeflateConfig {
            own_takeover: Takeover::None,
            peer_takeover: Takeover::None,
            own_bits: WindowBits::MAX,
            peer_bits: WindowBits::MAX,
            level: Level(2),
            threshold: 512,
        }
    }
}

/// The parameters of permessage-deflate on which client and server agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Whether the server keeps its compression window for the next message (context takeover).
    pub server_takeover: Takeover,
    /// Whether the client keeps its compression window for the next message (context takeover).
    pub client_takeover: Takeover,
    /// The size of the compression window for the server's messages.
    pub server_bits: WindowBits,
    /// The size of the compression window for the client's messages.
    pub client_bits: WindowBits,
    /// True if the server's response has the parameter `client_max_window_bits`. This is allowed
    /// only if the client's offer has it too.
    names_client_bits: bool,
}

impl Agreed {
    /// Returns the size of the compression window and the context takeover for the messages that
    /// `role` sends.
    pub fn sender(&self, role: Role) -> (WindowBits, Takeover) {
        match role {
            Role::Server => (self.server_bits, self.server_takeover),
            Role::Client => (self.client_bits, self.client_takeover),
        }
    }

    /// Returns the context takeover for the messages that `role` receives.
    pub fn receiver_takeover(&self, role: Role) -> Takeover {
        match role {
            Role::Server => self.client_takeover,
            Role::Client => self.server_takeover,
        }
    }
}

/// Writes the agreed parameters as the value of the server's `Sec-WebSocket-Extensions` header.
impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)?;
        if self.server_takeover == Takeover::None {
            f.write_str("; server_no_context_takeover")?;
        }
        if self.client_takeover == Takeover::None {
            f.write_str("; client_no_context_takeover")?;
        }
        if self.server_bits < WindowBits::MAX {
            write!(f, "; server_max_window_bits={}", self.server_bits.0)?;
        }
        if self.names_client_bits {
            write!(f, "; client_max_window_bits={}", self.client_bits.0)?;
        }
        Ok(())
    }
}

/// The reason why a client refuses the extensions in the server's response. The client then has to
/// fail the connection (RFC 7692, 5.1 and 7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The server's `Sec-WebSocket-Extensions` header is malformed.
    Malformed,
    /// The server granted an extension that was not offered, or granted one twice.
    Unasked,
    /// A parameter of the extension is unknown, repeated, or has an invalid value.
    Parameter,
    /// A parameter that the client requested is missing in the server's response, or is larger than
    /// requested.
    Ignored,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Malformed => "malformed Sec-WebSocket-Extensions",
            Refused::Unasked => "the server chose an extension that was not offered",
            Refused::Parameter => "bad parameter of permessage-deflate",
            Refused::Ignored => "a requested parameter of permessage-deflate was not granted",
        })
    }
}

impl std::error::Error for Refused {}

/// A client's offer of permessage-deflate. `Display` writes it as the value of the
/// `Sec-WebSocket-Extensions` header.
#[derive(Debug, Clone, Copy)]
pub struct Offer(pub DeflateConfig);

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)?;
        if self.0.peer_takeover == Takeover::None {
            f.write_str("; server_no_context_takeover")?;
        }
        if self.0.own_takeover == Takeover::None {
            f.write_str("; client_no_context_takeover")?;
        }
        if self.0.peer_bits < WindowBits::MAX {
            write!(f, "; server_max_window_bits={}", self.0.peer_bits.0)?;
        }
        f.write_str("; client_max_window_bits")?;
        if self.0.own_bits < WindowBits::MAX {
            write!(f, "={}", self.0.own_bits.0)?;
        }
        Ok(())
    }
}

impl DeflateConfig {
    /// Sets [`DeflateConfig::own_takeover`], the context takeover for the messages that this side
    /// sends.
    #[must_use]
    pub fn own_takeover(self, own_takeover: Takeover) -> DeflateConfig {
        DeflateConfig { own_takeover, ..self }
    }

    /// Sets [`DeflateConfig::peer_takeover`], the context takeover for the messages that the peer
    /// sends.
    #[must_use]
    pub fn peer_takeover(self, peer_takeover: Takeover) -> DeflateConfig {
        DeflateConfig { peer_takeover, ..self }
    }

    /// Sets the context takeover for the messages of both sides.
    #[must_use]
    pub fn takeover(self, takeover: Takeover) -> DeflateConfig {
        self.own_takeover(takeover).peer_takeover(takeover)
    }

    /// Sets [`DeflateConfig::own_bits`], the largest compression window for the messages that this
    /// side sends.
    #[must_use]
    pub fn own_bits(self, own_bits: WindowBits) -> DeflateConfig {
        DeflateConfig { own_bits, ..self }
    }

    /// Sets [`DeflateConfig::peer_bits`], the largest compression window for the messages that the
    /// peer sends.
    #[must_use]
    pub fn peer_bits(self, peer_bits: WindowBits) -> DeflateConfig {
        DeflateConfig { peer_bits, ..self }
    }

    /// Sets [`DeflateConfig::level`], the compression level.
    #[must_use]
    pub fn level(self, level: Level) -> DeflateConfig {
        DeflateConfig { level, ..self }
    }

    /// Sets [`DeflateConfig::threshold`], the minimum length in bytes of a message that is
    /// compressed.
    #[must_use]
    pub fn threshold(self, threshold: usize) -> DeflateConfig {
        DeflateConfig { threshold, ..self }
    }

    /// Chooses the compression parameters that a server grants. `line` is a line of the client's
    /// `Sec-WebSocket-Extensions` header, which lists the client's offers. The server grants the
    /// first offer that it can grant; `None` means that there is none. If the line is malformed,
    /// only the offers before the error count.
    pub fn choose(&self, line: &[u8]) -> Option<Agreed> {
        Extensions::parse(line).map_while(Result::ok).find_map(|extension| self.grant(&extension))
    }

    fn grant(&self, offer: &Extension<'_>) -> Option<Agreed> {
        let offered = Parameters::read(offer)?;
        // The response cannot limit the window of a client that does not name one. A state of 32
        // KiB reads any window.
        let client_bits = match offered.client_bits {
            ClientBits::Absent => WindowBits::MAX,
            ClientBits::Any => self.peer_bits,
            ClientBits::AtMost(most) => most.min(self.peer_bits),
        };
        Some(Agreed {
            server_takeover: if offered.server_no_takeover {
                Takeover::None
            } else {
                self.own_takeover
            },
            client_takeover: if offered.client_no_takeover {
                Takeover::None
            } else {
                self.peer_takeover
            },
            server_bits: offered.server_bits.unwrap_or(WindowBits::MAX).min(self.own_bits),
            client_bits,
            names_client_bits: client_bits < WindowBits::MAX,
        })
    }

    /// Checks the server's response to a client's [`Offer`] of compression. `lines` are all
    /// `Sec-WebSocket-Extensions` header lines of the response. Returns `None` if the server
    /// granted no extension.
    ///
    /// # Errors
    /// [`Refused`] if the response grants something that was not offered, or is malformed.
    pub fn check<'a>(
        &self,
        lines: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Option<Agreed>, Refused> {
        let mut agreed = None;
        for extension in lines.into_iter().flat_map(Extensions::parse) {
            let extension = extension.map_err(|_| Refused::Malformed)?;
            if agreed.is_some() || !extension.name().eq_ignore_ascii_case(NAME) {
                return Err(Refused::Unasked);
            }
            let answer = Parameters::read(&extension).ok_or(Refused::Parameter)?;
            let server_bits = answer.server_bits.unwrap_or(WindowBits::MAX);
            if server_bits > self.peer_bits
                || (self.peer_takeover == Takeover::None && !answer.server_no_takeover)
            {
                return Err(Refused::Ignored);
            }
            // In a response the parameter has a value (RFC 7692, 7.1.2.2).
            let most = match answer.client_bits {
                ClientBits::Absent => WindowBits::MAX,
                ClientBits::Any => return Err(Refused::Parameter),
                ClientBits::AtMost(most) => most,
            };
            let is_alone = answer.client_no_takeover || self.own_takeover == Takeover::None;
            agreed = Some(Agreed {
                server_takeover: if answer.server_no_takeover {
                    Takeover::None
                } else {
                    Takeover::Kept
                },
                client_takeover: if is_alone { Takeover::None } else { Takeover::Kept },
                server_bits,
                client_bits: most.min(self.own_bits),
                names_client_bits: false,
            });
        }
        Ok(agreed)
    }
}

/// The parameters of permessage-deflate as written in a header.
#[derive(Default)]
struct Parameters {
    server_no_takeover: bool,
    client_no_takeover: bool,
    server_bits: Option<WindowBits>,
    client_bits: ClientBits,
}

/// The parameter `client_max_window_bits` of permessage-deflate, which needs no value in an offer.
#[derive(Default, PartialEq)]
enum ClientBits {
    #[default]
    Absent,
    Any,
    AtMost(WindowBits),
}

impl Parameters {
    /// Parses the parameters of permessage-deflate. Returns `None` for another extension, or if a
    /// parameter is unknown, repeated or has an invalid value.
    fn read(extension: &Extension<'_>) -> Option<Parameters> {
        if !extension.name().eq_ignore_ascii_case(NAME) {
            return None;
        }
        let mut read = Parameters::default();
        for (name, value) in extension.params() {
            let is_repeated = if name.eq_ignore_ascii_case("server_no_context_takeover") {
                value.is_none().then(|| std::mem::replace(&mut read.server_no_takeover, true))?
            } else if name.eq_ignore_ascii_case("client_no_context_takeover") {
                value.is_none().then(|| std::mem::replace(&mut read.client_no_takeover, true))?
            } else if name.eq_ignore_ascii_case("server_max_window_bits") {
                read.server_bits.replace(WindowBits::new(value?.to_number()?)?).is_some()
            } else if name.eq_ignore_ascii_case("client_max_window_bits") {
                let bits = match value {
                    None => ClientBits::Any,
                    Some(value) => ClientBits::AtMost(WindowBits::new(value.to_number()?)?),
                };
                std::mem::replace(&mut read.client_bits, bits) != ClientBits::Absent
            } else {
                return None;
            };
            if is_repeated {
                return None;
            }
        }
        Some(read)
    }
}

const NAME: &str = "permessage-deflate";
