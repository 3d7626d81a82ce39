//! What the driver tells of itself, as a scraper reads it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub struct Metrics {
    pub address: SocketAddr,
}

impl Metrics {
    /// At a port that nobody has now.
    pub fn at_a_free_port() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
        Ok(Self { address: listener.local_addr()? })
    }

    /// How many members serve.
    pub async fn serving(&self) -> Result<usize> {
        let text = self.text().await?;
        Ok(samples(&text, "kosmos_csi_member_up").filter(|(_, value)| *value > 0.0).count())
    }

    /// So far, to members and to the host.
    pub async fn requests(&self) -> Result<[f64; 2]> {
        let text = self.text().await?;
        let (mut members, mut host) = (0.0, 0.0);
        for (labels, value) in samples(&text, "kosmos_csi_member_requests_total") {
            *(if labels.contains("member=\"(host)\"") { &mut host } else { &mut members }) += value;
        }
        Ok([members, host])
    }

    async fn text(&self) -> Result<String> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{}", answer.lines().next().unwrap_or_default());
        Ok(answer)
    }
}

/// Labels and value of each.
fn samples<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
        Some((labels, value.trim().parse().ok()?))
    })
}
