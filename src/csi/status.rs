//! Outcomes to gRPC codes: one table. The provisioner takes CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE and ABORTED of
//! CreateVolume as "still at work" and keeps calling, also after the claim was deleted; RESOURCE_EXHAUSTED as "try another
//! node"; INVALID_ARGUMENT as "hopeless for minutes"; and everything else as "nothing is left behind".

use tonic::{Code, Status};

use crate::error::Error;

/// A VolumeAttachment whose message is longer than 1024 bytes is refused, and then the user sees nothing at all.
const LONGEST_MESSAGE: usize = 900;

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(code(&error), shortened(error.to_string()))
    }
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

    fn every_outcome() -> Vec<(Error, Code)> {
        let text = || "x".to_owned();
        vec![
            (Error::Invalid(text()), Code::InvalidArgument),
            (Error::OutOfRange(text()), Code::OutOfRange),
            (Error::NotFound(text()), Code::NotFound),
            (Error::Exists(text()), Code::AlreadyExists),
            (Error::Gone(text()), Code::NotFound),
            (Error::InProgress(text()), Code::Aborted),
            (Error::NoPlace(text()), Code::ResourceExhausted),
            (Error::Refused(text()), Code::FailedPrecondition),
            (Error::Denied(text()), Code::PermissionDenied),
            (Error::Unreachable { member: text(), reason: text() }, Code::Unavailable),
            (Error::HostUnreachable(text()), Code::Unavailable),
        ]
    }

    #[test]
    fn every_outcome_has_its_code() {
        for (error, expected) in every_outcome() {
            assert_eq!(code(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn code_keeps_the_provisioner_calling_exactly_while_the_outcome_is_open() {
        for (error, code) in every_outcome() {
            let keeps_calling =
                matches!(code, Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted);
            assert_eq!(keeps_calling, !error.is_final(), "{error:?}");
        }
    }

    #[test]
    fn long_message_is_cut_between_characters() {
        let status = Status::from(Error::Refused("é".repeat(1000)));
        assert!(status.message().len() <= LONGEST_MESSAGE && status.message().ends_with("é…"));
    }
}
