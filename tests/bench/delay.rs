//! A long way to a member: connections are passed on, and what is sent on them waits half of the delay in each direction. Nothing
//! is lost or narrowed. It is a process of its own, with threads that sleep: a runtime's timers know no half milliseconds.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

const PIECE: usize = 64 << 10;

/// As a process of its own, until it is killed. The delay is that of a question and its answer.
pub fn process(listen: SocketAddr, to: SocketAddr, delay: Duration) -> Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("listen on {listen}"))?;
    for near in listener.incoming().flatten() {
        thread::spawn(move || {
            if let Err(error) = pass(near, to, delay) {
                eprintln!("a connection to {to} came to nothing: {error}");
            }
        });
    }
    Ok(())
}

fn pass(near: TcpStream, to: SocketAddr, delay: Duration) -> io::Result<()> {
    // Who connects waits for an answer to that as well.
    thread::sleep(delay);
    let far = TcpStream::connect(to)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (from_far, to_near) = (far.try_clone()?, near.try_clone()?);
    thread::spawn(move || carry(from_far, to_near, delay / 2));
    carry(near, far, delay / 2);
    Ok(())
}

/// Until one side ends.
fn carry(mut from: TcpStream, mut to: TcpStream, way: Duration) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        drop(to.shutdown(Shutdown::Write));
    });
    let mut piece = vec![0; PIECE];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        if sender.send((Instant::now() + way, piece[..read].to_vec())).is_err() {
            break;
        }
    }
}
