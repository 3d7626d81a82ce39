//! What rsync takes for its remote shell: it hands arguments and bytes to the process that has started rsync.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    net::Shutdown,
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream as Socket},
    },
    thread,
};

use rustix::io::ioctl_fionbio;
use tokio::{
    io::AsyncReadExt,
    net::{UnixListener, UnixStream},
};

/// Names the socket at which the sender waits.
pub const SOCKET: &str = "KOSMOS_CSI_MOVER_PIPE";
const LONGEST: u32 = 64 << 10;

/// The sender's side.
#[derive(Debug)]
pub struct Pipe {
    listener: UnixListener,
    name: String,
}

impl Pipe {
    /// Without a file, so that a pod needs no folder to write to. The number keeps apart what one process makes.
    pub fn listen(number: u32) -> io::Result<Self> {
        let name = format!("kosmos-csi-mover-{}-{number}", std::process::id());
        Ok(Self { listener: UnixListener::bind(format!("\0{name}"))?, name })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// What rsync's shell was called with, and what it says and hears.
    pub async fn accept(&self) -> io::Result<(Vec<String>, UnixStream)> {
        let (mut stream, _) = self.listener.accept().await?;
        let length = stream.read_u32().await?;
        if length > LONGEST {
            return Err(io::Error::other("rsync's shell was called with too much"));
        }
        let mut text = vec![0; length as usize];
        stream.read_exact(&mut text).await?;
        Ok((serde_json::from_slice(&text)?, stream))
    }
}

/// The shell's side: ends with the stream from the sender. It blocks, so that the kernel can hand on what it has to itself.
pub fn run(arguments: Vec<OsString>) -> io::Result<()> {
    let name = std::env::var(SOCKET).map_err(|_| io::Error::other(format!("{SOCKET} is not set: rsync calls this")))?;
    let words: Result<Vec<String>, _> = arguments.into_iter().map(OsString::into_string).collect();
    let words = words.map_err(|word| io::Error::other(format!("no text: {}", word.display())))?;
    let text = serde_json::to_vec(&words)?;
    let mut socket = Socket::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    socket.write_all(&u32::try_from(text.len()).map_err(io::Error::other)?.to_be_bytes())?;
    socket.write_all(&text)?;
    let (mut saying, mut stdin) = (socket.try_clone()?, File::from(io::stdin().as_fd().try_clone_to_owned()?));
    thread::spawn(move || io::copy(&mut stdin, &mut saying).and_then(|_| saying.shutdown(Shutdown::Write)));
    // rsync leaves it so that whoever writes into it when it is full gets an error, and the other end says more than it reads at once.
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    ioctl_fionbio(&stdout, false)?;
    let mut stdout = File::from(stdout);
    io::copy(&mut socket, &mut stdout).map(|_| ())
}
