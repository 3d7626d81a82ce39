//! What rsync takes for its remote shell: it hands its arguments and its own ends of rsync's sockets to the process that has started rsync.

use std::{
    ffi::OsString,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream as Socket},
    },
};

use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        Shutdown, recvmsg, sendmsg, shutdown,
    },
};
use tokio::{
    io::{AsyncReadExt, Interest, Join, join},
    net::{UnixListener, UnixStream},
    process::{ChildStdin, ChildStdout},
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

/// What rsync's shell was called with and has handed over.
#[derive(Debug)]
pub struct Call {
    pub arguments: Vec<String>,
    pub said: ChildStdout,
    /// With what the shell waits for: it ends when this is dropped.
    pub heard: Join<UnixStream, ChildStdin>,
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

    pub async fn accept(&self) -> io::Result<Call> {
        let (mut stream, _) = self.listener.accept().await?;
        let mut length = [0; 4];
        let handed = stream.async_io(Interest::READABLE, || take(&stream, &mut length)).await?;
        let Ok([stdin, stdout]) = <[OwnedFd; 2]>::try_from(handed) else {
            return Err(io::Error::other("its shell has not handed over what it says and hears"));
        };
        // Sockets, where rsync was built for them, and else pipes: both are read and written alike.
        let (said, heard) = (ChildStdout::from_std(stdin.into())?, ChildStdin::from_std(stdout.into())?);
        let length = u32::from_be_bytes(length);
        if length > LONGEST {
            return Err(io::Error::other("rsync's shell was called with too much"));
        }
        let mut text = vec![0; length as usize];
        stream.read_exact(&mut text).await?;
        Ok(Call { arguments: serde_json::from_slice(&text)?, said, heard: join(stream, heard) })
    }
}

/// The first bytes, and the descriptors that come with them. No child may have these: rsync would never come to the end of what it hears.
fn take(stream: &UnixStream, first: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(stream, &mut [IoSliceMut::new(first)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut handed = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            handed.extend(descriptors);
        }
    }
    Ok(handed)
}

/// The shell's side: ends when the sender has nothing more to say to rsync, which waits for its shell.
pub fn run(arguments: Vec<OsString>) -> io::Result<()> {
    let name = std::env::var(SOCKET).map_err(|_| io::Error::other(format!("{SOCKET} is not set: rsync calls this")))?;
    let words: Result<Vec<String>, _> = arguments.into_iter().map(OsString::into_string).collect();
    let words = words.map_err(|word| io::Error::other(format!("no text: {}", word.display())))?;
    let text = serde_json::to_vec(&words)?;
    let mut socket = Socket::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let handed = [stdin.as_fd(), stdout.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&handed));
    let length = u32::try_from(text.len()).map_err(io::Error::other)?.to_be_bytes();
    sendmsg(&socket, &[IoSlice::new(&length)], &mut control, SendFlags::empty())?;
    socket.write_all(&text)?;
    socket.read_to_end(&mut Vec::new())?;
    // The sender still reads from it, and an rsync that has much to say would say it all to nobody. Pipes cannot be closed so.
    let _ = shutdown(&stdin, Shutdown::Read);
    Ok(())
}
