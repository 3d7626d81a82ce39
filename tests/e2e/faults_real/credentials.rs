//! What goes wrong with certificates and tokens where people replace them one after the other.

use std::time::Duration;

use super::fault::{FOUND, Fault, HOST_WAITS, How, MEMBER_WAITS, MINUTES, PODS_WAIT, Words};

const GIVES: &str = "Users do nothing. The host's administrator gives [another kubeconfig](outages.md#credentials-are-refused), and restarts nothing";
const REFUSED: Words = Words { seen: MEMBER_WAITS.seen, does: GIVES };
const AGENT_IS_REFUSED: Words = Words { seen: PODS_WAIT.seen, does: GIVES };
const HOST_IS_REFUSED: Words = Words {
    seen: HOST_WAITS.seen,
    does: "Users do nothing. The host's administrator [restarts the driver](outages.md#credentials-are-refused): it reads the host's authority \
           when it begins, as its sidecars do",
};

/// Until people have done the second half of it.
const MEANWHILE: Duration = Duration::from_secs(40);

const fn of_member(name: &'static str, words: Words, how: How) -> Fault {
    Fault { name, words, lasts: MEANWHILE, times: 1, within: FOUND, takes: MINUTES, is_members: true, how }
}

/// Of the driver in a member.
pub const OF_DRIVER: [Fault; 2] = [
    of_member("member's authority and certificate are replaced, and then its kubeconfig", REFUSED, How::NewAuthority),
    of_member("token of the driver ends, and then another one is given", REFUSED, How::TokenEnds),
];

/// Of the agent in a member.
pub const OF_AGENT: [Fault; 2] = [
    of_member("agent: member's authority and certificate are replaced", AGENT_IS_REFUSED, How::NewAuthority),
    of_member("agent: its token ends, and then another one is given", AGENT_IS_REFUSED, How::TokenEnds),
];

/// Of the driver and its sidecars in the host.
pub const TO_HOST: Fault = Fault {
    is_members: false,
    ..of_member("host: its authority and certificate are replaced", HOST_IS_REFUSED, How::NewAuthority)
};
