//! What the driver tells of itself, as a scraper reads it.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

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

    /// How many members get volumes: it is known who they are, and what they have is listed.
    pub async fn serving(&self) -> Result<usize> {
        let text = self.text().await?;
        let is_open = |labels: &str| labels.contains("state=\"ok\"");
        let states = samples(&text, "kosmos_csi_member_state");
        Ok(states.filter(|(labels, value)| is_open(labels) && *value > 0.0).count())
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

    /// The most requests that got no answer, of one of these members.
    pub async fn unanswered(&self, members: &[String]) -> Result<f64> {
        let (text, members) = (self.text().await?, members.iter().map(String::as_str).collect::<HashSet<_>>());
        let is_of_one = |labels: &str| labels.split('"').nth(1).is_some_and(|member| members.contains(member));
        let counts = samples(&text, "kosmos_csi_member_request_errors_total");
        Ok(counts.filter(|(labels, _)| is_of_one(labels)).map(|(_, count)| count).fold(0.0, f64::max))
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
