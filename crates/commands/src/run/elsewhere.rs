//! The roles that ask the kernel of Linux, on another system: they say so.
#![cfg_attr(target_os = "linux", allow(unreachable_pub, reason = "its tests alone are built there"))]

use std::future::{Ready, ready};

use super::Misuse;
use crate::{
    args::{Node, mover::Mover},
    telemetry::Traces,
};

pub fn node(_: Node, _: Traces) -> Ready<anyhow::Result<()>> {
    ready(Err(unplayed("node").into()))
}

pub fn mover(_: Mover) -> Ready<anyhow::Result<()>> {
    ready(Err(unplayed("mover").into()))
}

fn unplayed(role: &str) -> Misuse {
    Misuse(format!(
        "`kosmos-csi {role}` runs on Linux alone, as it needs Linux's kernel to mount and copy, but this program is built for {}: run it \
         from the images of this driver",
        std::env::consts::OS
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Role;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(subcommand)]
        role: Role,
    }

    fn typed(words: &str) -> Role {
        Typed::try_parse_from(words.split(' ')).unwrap().role
    }

    #[tokio::test]
    async fn role_of_linux_is_refused_elsewhere_by_its_name() {
        let Role::Node(of_node) = typed("kosmos-csi node --node-name=worker --member=cluster38") else { panic!() };
        let Role::Mover(of_mover) = typed("kosmos-csi mover send") else { panic!() };
        for (refused, role) in [(node(of_node, Traces::default()).await, "node"), (mover(of_mover).await, "mover")] {
            let error = refused.unwrap_err();
            let said = error.to_string();
            assert!(error.is::<Misuse>() && said.starts_with(&format!("`kosmos-csi {role}` runs on Linux")), "{said}");
        }
    }
}
