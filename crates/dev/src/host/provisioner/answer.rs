//! How external-provisioner goes on after an answer, by its code: whether the driver may hold something, whether the
//! scheduler chooses again, and after which pause it asks again.

use std::time::Duration;

use csi::client::Code;

const SHORTEST: Duration = Duration::from_secs(1);
/// As the driver's documentation recommends for `--retry-interval-max`.
const LONGEST: Duration = Duration::from_secs(10);

/// What follows from an answer other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The driver is at work: it is asked again, also when the claim is gone meanwhile.
    KeepAsking,
    /// Nothing is left behind, and another node may do.
    Reschedule,
    /// Nothing is left behind: asked again while the claim is there.
    AskAgain,
    /// The same, but it is hopeless for a while.
    AskMuchLater,
}

pub(super) fn next(code: Code, node_selected: bool) -> Next {
    match code {
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => Next::KeepAsking,
        Code::ResourceExhausted if node_selected => Next::Reschedule,
        Code::InvalidArgument => Next::AskMuchLater,
        _ => Next::AskAgain,
    }
}

/// The pause after so many answers other than success.
pub(super) fn pause(next: Next, tries: u32) -> Duration {
    let doubled = SHORTEST.saturating_mul(2_u32.saturating_pow(tries.saturating_sub(1)));
    if next == Next::AskMuchLater { LONGEST } else { doubled.min(LONGEST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_says_how_to_go_on() {
        for code in (0..=16).map(Code::from) {
            let expected = match i32::from(code) {
                1 | 4 | 10 | 14 => Next::KeepAsking,
                3 => Next::AskMuchLater,
                8 => Next::Reschedule,
                _ => Next::AskAgain,
            };
            assert_eq!(next(code, true), expected, "{code:?}");
        }
        assert_eq!(next(Code::ResourceExhausted, false), Next::AskAgain, "no scheduler has a say");
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let seconds = |next, tries| pause(next, tries).as_secs();
        assert_eq!([1, 2, 3, 4, 5, 40].map(|tries| seconds(Next::KeepAsking, tries)), [1, 2, 4, 8, 10, 10]);
        assert_eq!(seconds(Next::AskMuchLater, 1), 10);
    }
}
