//! Outcomes to gRPC codes: one table. The provisioner takes CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE and ABORTED of
//! CreateVolume as "still at work" and keeps calling, also after the claim was deleted; RESOURCE_EXHAUSTED as "try another
//! node"; INVALID_ARGUMENT as "hopeless for minutes"; and everything else as "nothing is left behind".

use tonic::{Code, Response, Status};

use domain::{
    error::{self, Error},
    printable::printable,
};

/// A VolumeAttachment whose message is longer than 1024 bytes is refused, and then the user sees nothing at all.
const LONGEST_MESSAGE: usize = 900;

pub type Answer<T> = Result<Response<T>, Status>;

/// What came of a call, as the interface says it.
pub fn answer<T>(outcome: error::Result<T>) -> Answer<T> {
    outcome.map(Response::new).map_err(|error| status(&error))
}

fn status(error: &Error) -> Status {
    Status::new(code(error), shortened(printable(&error.to_string()).into_owned()))
}

fn code(error: &Error) -> Code {
    match error {
        Error::Invalid(_) => Code::InvalidArgument,
        Error::OutOfRange(_) => Code::OutOfRange,
        Error::NotFound(_) | Error::Gone(_) => Code::NotFound,
        Error::Exists(_) => Code::AlreadyExists,
        Error::InProgress(_) => Code::Aborted,
        Error::NoPlace(_) => Code::ResourceExhausted,
        Error::Refused(_) => Code::FailedPrecondition,
        Error::Denied(_) => Code::PermissionDenied,
        Error::Unreachable { .. } | Error::HostUnreachable(_) => Code::Unavailable,
    }
}

fn shortened(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        let end = message.floor_char_boundary(LONGEST_MESSAGE - "…".len());
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/errors.md");

    fn every_outcome() -> [Error; 11] {
        let text = || "x".to_owned();
        [
            Error::Invalid(text()),
            Error::OutOfRange(text()),
            Error::NotFound(text()),
            Error::Exists(text()),
            Error::Gone(text()),
            Error::InProgress(text()),
            Error::NoPlace(text()),
            Error::Refused(text()),
            Error::Denied(text()),
            Error::Unreachable { member: text(), reason: text() },
            Error::HostUnreachable(text()),
        ]
    }

    /// The code that the page gives an outcome: `InvalidArgument` for `INVALID_ARGUMENT`.
    fn on_the_page(error: &Error) -> String {
        let name: String = format!("{error:?}").chars().take_while(|letter| letter.is_alphanumeric()).collect();
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{name}`:"))).unwrap();
        let words = row.split('|').nth(2).unwrap().trim().trim_matches('`').split('_');
        let words: Vec<String> = words.map(|word| word[..1].to_owned() + &word[1..].to_lowercase()).collect();
        words.concat()
    }

    #[test]
    fn every_outcome_has_the_code_that_the_page_says() {
        for error in every_outcome() {
            assert_eq!(format!("{:?}", code(&error)), on_the_page(&error), "{error:?}");
        }
        let rows = PAGE.lines().filter(|line| line.starts_with("| `") && line.contains("`: "));
        assert_eq!(rows.count(), every_outcome().len());
    }

    #[test]
    fn code_keeps_the_provisioner_calling_exactly_while_the_outcome_is_open() {
        for error in every_outcome() {
            let keeps_calling =
                matches!(code(&error), Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted);
            assert_eq!(keeps_calling, !error.is_final(), "{error:?}");
        }
    }

    #[test]
    fn long_message_is_cut_between_characters() {
        let status = status(&Error::Refused("é".repeat(1000)));
        assert!(status.message().len() <= LONGEST_MESSAGE && status.message().ends_with("é…"));
    }
}
