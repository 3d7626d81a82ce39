//! A fault: what goes wrong, for how long, what users see meanwhile, and how soon after it all has to be well.

use std::time::Duration;

use crate::clusters::between::{Action, Rule};

#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub name: &'static str,
    pub words: Words,
    /// It goes on for so long at least, and until it has taken place so often.
    pub lasts: Duration,
    pub times: usize,
    /// From its end until all has come about.
    pub within: Duration,
    /// How long all of it takes after that, where nothing is wrong: it is begun only where there is time for that.
    pub takes: Duration,
    /// It concerns one member alone: who waits for that is told, and who uses the other one is served.
    pub is_members: bool,
    pub how: How,
}

/// For people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// By users, while it goes on.
    pub seen: &'static str,
    /// What they do, or who is there for it.
    pub does: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub enum How {
    /// By the proxy.
    Request(Rule),
    /// The way shows a certificate of another authority, and at its end whoever goes there is given a kubeconfig with that.
    NewAuthority,
    /// The token of whoever goes by the way ends, and at its end another one is given.
    TokenEnds,
    /// SIGSTOP, and at its end SIGCONT.
    Paused(Who),
    /// SIGKILL, and at its end begun again.
    Killed(Who),
    /// What is sent in one direction does not arrive.
    Dropped(Link),
    Full(Disk),
    /// Of a member's node, or of the host's real one, with all that is in it; at its end it begins.
    PowerOff,
    HostPowerOff,
    /// The clock of driver and agent is so many seconds ahead, and at its end right again.
    Clock(i64),
    /// The host's control plane is of the version of its members, and at its end of the one before again.
    Upgraded,
    /// Driver and agent are of a version before, and at its end of that of now again.
    Before,
    /// A member's etcd is as it was in a backup of some seconds ago, and a claim has been bound there since.
    Restored,
    /// Likewise the host's, in whose backup that claim still waits.
    HostRestored,
}

/// A process.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// Of a cluster.
    Host(&'static str),
    Member(&'static str),
    /// The controller, or one of its sidecars.
    Ours(&'static str),
    Agent,
    NodePlugin,
}

#[derive(Clone, Copy, Debug)]
pub enum Link {
    /// Of the driver, which goes through the proxy.
    ToMember,
    FromMember,
    /// Of the member's node and its API server.
    FromNode,
    ToNode,
}

#[derive(Clone, Copy, Debug)]
pub enum Disk {
    /// Of a member's etcd.
    Etcd,
    /// Of a member's local-path volumes.
    LocalPath,
}

impl How {
    /// It meets users in the middle of what they do; else they come while it goes on.
    pub fn comes_amid(self) -> bool {
        // Within the time from which the moment is drawn it has grown the one claim.
        let is_done_too_soon = matches!(self, Self::Paused(Who::Ours(RESIZER)) | Self::Killed(Who::Ours(RESIZER)));
        !is_done_too_soon
            && matches!(self, Self::Paused(_) | Self::Killed(_) | Self::Clock(_) | Self::Upgraded | Self::Before)
    }

    /// It happens to no member, but to the ways there, or to who asks there.
    pub fn leaves_members(self) -> bool {
        match self {
            Self::Request(_)
            | Self::NewAuthority
            | Self::TokenEnds
            | Self::HostPowerOff
            | Self::HostRestored
            | Self::Clock(_)
            | Self::Upgraded
            | Self::Before => true,
            Self::Paused(who) | Self::Killed(who) => !matches!(who, Who::Member(_)),
            Self::Dropped(link) => matches!(link, Link::ToMember | Link::FromMember),
            Self::Full(_) | Self::PowerOff | Self::Restored => false,
        }
    }

    /// What is on its way when it begins is carried out in another member; what the driver has made there is withdrawn after a quarter of an hour.
    pub fn leads_elsewhere(self) -> bool {
        matches!(self, Self::Request(Rule { action: Action::Elsewhere, .. }))
    }

    /// Whoever goes straight to an API server is answered.
    pub fn leaves_servers(self) -> bool {
        let is_of_link = matches!(self, Self::Dropped(Link::ToMember | Link::FromMember));
        is_of_link || matches!(self, Self::Request(_) | Self::NewAuthority | Self::TokenEnds)
    }
}

/// The driver's own process. Its sidecars end with it.
pub const CONTROLLER: &str = "controller";
pub const RESIZER: &str = "host-csi-resizer";

pub const MEMBER_WAITS: Words = Words {
    seen: "What needs the member waits, and an event says why; all else goes on",
    does: "Users do nothing. The member's administrator has it [answer again](outages.md#a-member-is-down)",
};
pub const HOST_WAITS: Words = Words {
    seen: "Claims, snapshots and growth wait, some without a word; what runs goes on",
    does: "Users do nothing. The host's administrator has its [API server](outages.md#the-hosts-api-server-is-down) answer again",
};
pub const PODS_WAIT: Words = Words {
    seen: "Pods that are new or deleted wait; those that run go on",
    does: "Users do nothing. The host's administrator looks whether [the agent](outages.md#the-agent-is-down) reaches the member: `kosmos-csi \
           member check`",
};

/// Of most, which come to some forty seconds where nothing else is at work.
pub const MINUTES: Duration = Duration::from_mins(3);
/// Longer than most who ask are patient.
pub const A_WHILE: Duration = Duration::from_secs(20);
/// Who watches an API server looks for it again after up to a minute, each watch for itself, and then has to do what it missed.
pub const FOUND: Duration = Duration::from_mins(3);
