//! WebSocket echo over sockets with one of the costs in each read.

use std::io;
use std::net::Ipv4Addr;
use std::str::FromStr;

use rookery_websocket::protocol::handshake::{OriginPolicy, ServerConfig};
use rookery_websocket::{Config, Error, accept};
use tokio::net::{TcpListener, TcpStream};

use crate::frame::{Cleanup, DEADLINE};

#[derive(Clone, Copy)]
pub enum Cost {
    None,
    Closure,
    Timer,
}

impl FromStr for Cost {
    type Err = ();

    fn from_str(name: &str) -> Result<Cost, ()> {
        match name {
            "ours" => Ok(Cost::None),
            "closure" => Ok(Cost::Closure),
            "timer" => Ok(Cost::Timer),
            _ => Err(()),
        }
    }
}

pub fn run(port: u16, cost: Cost) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let config: &'static ServerConfig =
            Box::leak(Box::new(ServerConfig { origin: OriginPolicy::Any, ..ServerConfig::default() }));
        loop {
            let (io, _) = listener.accept().await?;
            // A generator that hangs up is no news here.
            tokio::task::spawn_local(async move { echo(io, config, cost).await.ok() });
        }
    }))
}

async fn echo(io: TcpStream, config: &ServerConfig, cost: Cost) -> Result<(), Error> {
    io.set_nodelay(true).ok();
    let (mut connection, _) = accept(io, config, Config::default()).await?;
    loop {
        let received = match cost {
            Cost::None => connection.receive().await?,
            Cost::Closure => {
                let cleanup = Cleanup::new();
                let received = connection.receive().await?;
                assert!(cleanup.failed.borrow().is_none());
                received
            }
            Cost::Timer => match tokio::time::timeout(DEADLINE, connection.receive()).await {
                Ok(received) => received?,
                Err(_) => return Ok(()),
            },
        };
        let Some((message, mut writer)) = received else { return Ok(()) };
        writer.reply(message).await?;
    }
}
