//! What can come of a call other than success. The variants are outcomes, not places in the code: the caller of a CSI
//! driver acts on the code alone, so the one table that chooses it stands here, beside the outcomes' meaning.

use std::fmt;

use tonic::{Code, Status};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Error {
    /// The request can never succeed as it is written.
    Invalid(String),
    NotFound(String),
    /// The name, attachment or path is taken by something that differs from what is asked.
    Exists(String),
    /// Something else has to happen first.
    Precondition(String),
    /// Not here, or not now: another place or a smaller size might do.
    NoRoom(String),
    OutOfRange(String),
    /// Another call for the same thing has not ended.
    InProgress(String),
    /// A page token that this driver did not give out.
    BadToken(String),
    /// A failure that the storage class asks for.
    VolumeRequest(Code),
    Unsupported(String),
    Internal(String),
}

impl Error {
    /// Turns a failure of the machine into [`Error::Internal`], saying what was being done.
    pub(crate) fn during<E: fmt::Display>(action: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self::Internal(format!("{action}: {error}"))
    }

    fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::NotFound(_) => Code::NotFound,
            Self::Exists(_) => Code::AlreadyExists,
            Self::Precondition(_) => Code::FailedPrecondition,
            Self::NoRoom(_) => Code::ResourceExhausted,
            Self::OutOfRange(_) => Code::OutOfRange,
            Self::InProgress(_) | Self::BadToken(_) => Code::Aborted,
            Self::VolumeRequest(code) => *code,
            Self::Unsupported(_) => Code::Unimplemented,
            Self::Internal(_) => Code::Internal,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message)
            | Self::NotFound(message)
            | Self::Exists(message)
            | Self::Precondition(message)
            | Self::NoRoom(message)
            | Self::OutOfRange(message)
            | Self::InProgress(message)
            | Self::BadToken(message)
            | Self::Unsupported(message)
            | Self::Internal(message) => formatter.write_str(message),
            Self::VolumeRequest(_) => formatter.write_str("the class's parameters ask for this failure"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Status::new(error.code(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_code() {
        let text = String::new;
        let table = [
            (Error::Invalid(text()), Code::InvalidArgument),
            (Error::NotFound(text()), Code::NotFound),
            (Error::Exists(text()), Code::AlreadyExists),
            (Error::Precondition(text()), Code::FailedPrecondition),
            (Error::NoRoom(text()), Code::ResourceExhausted),
            (Error::OutOfRange(text()), Code::OutOfRange),
            (Error::InProgress(text()), Code::Aborted),
            (Error::BadToken(text()), Code::Aborted),
            (Error::VolumeRequest(Code::DataLoss), Code::DataLoss),
            (Error::Unsupported(text()), Code::Unimplemented),
            (Error::Internal(text()), Code::Internal),
        ];
        for (error, code) in table {
            assert_eq!(Status::from(error).code(), code);
        }
    }
}
