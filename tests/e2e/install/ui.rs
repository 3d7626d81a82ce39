//! The page of a release with volumes, as an administrator opens it.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::Command,
    time::timeout,
};

use super::release::PROGRAM;
use crate::clusters::Fleet;

const PATIENCE: Duration = Duration::from_mins(1);

/// The leader's, through the host's API server and a real kubelet.
pub async fn is_shown_on_this_machine(fleet: &Fleet) -> Result<()> {
    let mut showing = Command::new(PROGRAM)
        .args(["ui", "--port=0"])
        .arg(format!("--kubeconfig={}", fleet.host().kubeconfig().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(showing.stdout.take().context("it prints nothing")?).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.context("nothing is shown")??.unwrap_or_default();
    let address = line.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    let address = address.with_context(|| format!("no address in {line:?}"))?;
    for (path, words) in [
        ("/", &["2 of 2 members are well.", ", which leads"][..]),
        ("/volumes?namespace=growth", &["growth/nginx-pvc", "growth/nginx-restored", "cluster38"]),
        ("/api/members", &["\"cluster38\"", "\"cluster39\""]),
    ] {
        let page = timeout(PATIENCE, get(address, path)).await.with_context(|| format!("{path} does not come"))??;
        for word in words {
            ensure!(page.contains(word), "{path} has no {word}: {page}");
        }
    }
    showing.kill().await?;
    Ok(())
}

async fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}
