//! The way into a fleet for those outside: a port on the machine's loopback whose connections are passed on to an
//! address in the fleet's network.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};

use super::namespaces;

/// Listens on a free port and forwards for as long as this process lives.
pub fn forward(address: SocketAddr, namespaces_of: i32, folder: &Path) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on a free port")?;
    let port = listener.local_addr().context("learn the free port")?.port();
    let log = folder.join("forward.log");
    thread::spawn(move || {
        for outside in listener.incoming().flatten() {
            let log = log.clone();
            thread::spawn(move || {
                if let Err(error) = pass(&outside, address, namespaces_of) {
                    note(&log, &format!("a connection to {address} came to nothing: {error:#}"));
                }
            });
        }
    });
    Ok(port)
}

/// The caller sees his connection reset, and not why.
fn note(log: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(log);
    drop(file.and_then(|mut file| writeln!(file, "{line}")));
}

fn pass(outside: &TcpStream, address: SocketAddr, namespaces_of: i32) -> Result<()> {
    namespaces::enter_network(namespaces_of)?;
    let inside = TcpStream::connect(address)?;
    outside.set_nodelay(true)?;
    inside.set_nodelay(true)?;
    thread::scope(|scope| {
        scope.spawn(|| copy(&inside, outside));
        copy(outside, &inside)
    })?;
    Ok(())
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let result = io::copy(&mut from, &mut to);
    to.shutdown(Shutdown::Write).ok();
    if result.is_err() {
        from.shutdown(Shutdown::Both).ok(); // a reset: the other direction has nothing to wait for either
    }
    result.map(|_| ())
}
