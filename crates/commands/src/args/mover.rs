//! The command line of the mover's pods. The driver writes it; nobody types it.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use clap::Subcommand;

use super::absolute;

#[derive(Debug, Subcommand)]
pub enum Mover {
    /// Send the files of a volume until the other end has verified its copy; nobody may change the volume meanwhile
    Send(Places),
    /// Receive the files of a volume, and compare the copy with them
    Receive {
        #[command(flatten)]
        places: Places,

        /// Refuse a volume that is not empty, as receiving would remove from it what the source does not have
        #[arg(long)]
        must_be_empty: bool,
    },
    /// What rsync calls to reach the other end
    #[command(hide = true)]
    Pipe {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, clap::Args)]
pub struct Places {
    /// Where the volume is mounted
    #[arg(long, default_value = "/data", value_parser = absolute, value_name = "FOLDER")]
    pub folder: PathBuf,

    /// A folder with tls.crt and tls.key of this end, and with the certificate of the other as ca.crt
    #[arg(long, default_value = "/keys", value_parser = absolute, value_name = "FOLDER")]
    pub keys: PathBuf,

    /// Where this end waits to be joined to the other one
    #[arg(long, default_value = "127.0.0.1:7740", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,

    /// Where to write one line of JSON that says how it ended
    #[arg(long, default_value = "/dev/termination-log", value_parser = absolute, value_name = "FILE")]
    pub result: PathBuf,
}
