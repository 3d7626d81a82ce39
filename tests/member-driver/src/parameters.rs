//! The parameters of a `StorageClass` and of a `VolumeAttributesClass`, read strictly: a key or value that means nothing
//! is refused, for a silent default would hide a slip in a test.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonic::Code;

use crate::error::Error;
use crate::volume::Map;

/// What a volume is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A sparse file on a loop device.
    #[default]
    Loop,
    /// A folder that many may use at once.
    Shared,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) kind: Kind,
    pub(crate) create: Fault,
    pub(crate) delete: Fault,
}

/// What goes wrong with a call, on purpose.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) delay: Duration,
    pub(crate) failure: Option<Failure>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// How many calls fail; None means every one.
    pub(crate) times: Option<u32>,
}

/// Sidecars add keys of their own below this prefix.
const SIDECAR_PREFIX: &str = "csi.storage.k8s.io/";

/// What the Secrets of a call on a node must hold under the same key.
pub(crate) const PASSWORD: &str = "password";

const CODES: [(&str, Code); 16] = [
    ("CANCELLED", Code::Cancelled),
    ("UNKNOWN", Code::Unknown),
    ("INVALID_ARGUMENT", Code::InvalidArgument),
    ("DEADLINE_EXCEEDED", Code::DeadlineExceeded),
    ("NOT_FOUND", Code::NotFound),
    ("ALREADY_EXISTS", Code::AlreadyExists),
    ("PERMISSION_DENIED", Code::PermissionDenied),
    ("RESOURCE_EXHAUSTED", Code::ResourceExhausted),
    ("FAILED_PRECONDITION", Code::FailedPrecondition),
    ("ABORTED", Code::Aborted),
    ("OUT_OF_RANGE", Code::OutOfRange),
    ("UNIMPLEMENTED", Code::Unimplemented),
    ("INTERNAL", Code::Internal),
    ("UNAVAILABLE", Code::Unavailable),
    ("DATA_LOSS", Code::DataLoss),
    ("UNAUTHENTICATED", Code::Unauthenticated),
];

impl Parameters {
    pub(crate) fn parse(map: &Map) -> Result<Self, Error> {
        let mut parameters = Self::default();
        for (key, value) in map {
            let read = match key.as_str() {
                "kind" => kind(value).map(|kind| parameters.kind = kind),
                "createDelay" => duration(value).map(|delay| parameters.create.delay = delay),
                "createError" => failure(value).map(|failure| parameters.create.failure = Some(failure)),
                "deleteDelay" => duration(value).map(|delay| parameters.delete.delay = delay),
                "deleteError" => failure(value).map(|failure| parameters.delete.failure = Some(failure)),
                key if key.starts_with(SIDECAR_PREFIX) => Ok(()),
                PASSWORD if !value.is_empty() => Ok(()),
                _ => Err("there is no such parameter".to_owned()),
            };
            read.map_err(|reason| Error::Invalid(format!("parameter {key:?}: {reason}")))?;
        }
        Ok(parameters)
    }
}

/// Snapshots and groups of them take no parameters.
pub(crate) fn check_none(map: &Map) -> Result<(), Error> {
    match map.keys().find(|key| !key.starts_with(SIDECAR_PREFIX)) {
        Some(key) => Err(Error::Invalid(format!("parameter {key:?}: there is no such parameter"))),
        None => Ok(()),
    }
}

/// The attributes of a volume that may change during its life.
pub(crate) fn check_mutable(map: &Map) -> Result<(), Error> {
    for (key, value) in map {
        let reason = match key.as_str() {
            "iops" if value.parse::<u32>().is_err() => "not a number",
            "iops" | "label" => continue,
            _ => "there is no such attribute",
        };
        return Err(Error::Invalid(format!("mutable parameter {key:?}: {reason}")));
    }
    Ok(())
}

fn kind(text: &str) -> Result<Kind, String> {
    match text {
        "loop" => Ok(Kind::Loop),
        "shared" => Ok(Kind::Shared),
        _ => Err(format!("{text:?} is neither loop nor shared")),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        _ => None,
    };
    let milliseconds = digits.parse::<u64>().ok().zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
    milliseconds.map(Duration::from_millis).ok_or_else(|| format!("{text:?} is not a time such as 500ms, 5s or 2m"))
}

fn failure(text: &str) -> Result<Failure, String> {
    let (name, times) = match text.split_once(':') {
        Some((name, times)) => {
            let times = times.parse().map_err(|_| format!("{times:?} is not a number of times"))?;
            (name, Some(times))
        }
        None => (text, None),
    };
    let code = CODES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code);
    code.map(|code| Failure { code, times }).ok_or_else(|| format!("{name:?} is not the name of a gRPC error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Map {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn without_parameters_a_volume_is_a_loop_volume_that_obeys() {
        let sidecar = map(&[("csi.storage.k8s.io/pvc/name", "data")]);
        for empty in [Map::new(), sidecar] {
            assert_eq!(Parameters::parse(&empty), Ok(Parameters::default()));
        }
    }

    #[test]
    fn every_parameter_is_read() {
        let given = map(&[
            ("kind", "shared"),
            ("createDelay", "1500ms"),
            ("createError", "RESOURCE_EXHAUSTED:3"),
            ("deleteDelay", "2m"),
            ("deleteError", "INTERNAL"),
        ]);
        let read = Parameters {
            kind: Kind::Shared,
            create: Fault {
                delay: Duration::from_millis(1500),
                failure: Some(Failure { code: Code::ResourceExhausted, times: Some(3) }),
            },
            delete: Fault {
                delay: Duration::from_mins(2),
                failure: Some(Failure { code: Code::Internal, times: None }),
            },
        };
        assert_eq!(Parameters::parse(&given), Ok(read));
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        let table = [
            ("Kind", "loop"),
            ("kind", "nfs"),
            ("createDelay", "5"),
            ("createDelay", "-5s"),
            ("createError", "OK"),
            ("createError", "internal"),
            ("deleteError", "INTERNAL:x"),
            ("iops", "1"),
        ];
        for (key, value) in table {
            match Parameters::parse(&map(&[(key, value)])) {
                Err(Error::Invalid(message)) => assert!(message.contains(key), "{message}"),
                other => panic!("{key}={value}: {other:?}"),
            }
        }
    }

    #[test]
    fn attributes_are_iops_and_label() {
        assert!(check_mutable(&map(&[("iops", "3000"), ("label", "gold")])).is_ok());
        for wrong in [("iops", "fast"), ("colour", "red")] {
            assert!(check_mutable(&map(&[wrong])).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn snapshots_take_no_parameters_but_the_sidecars_own() {
        assert!(check_none(&map(&[("csi.storage.k8s.io/volumesnapshot/name", "a")])).is_ok());
        assert!(check_none(&map(&[("kind", "loop")])).is_err());
    }
}
