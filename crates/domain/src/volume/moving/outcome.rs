//! What a mover's end says of its copy, as its last message. It is a member's word: two of them have to say the same.

use serde::{Deserialize, Serialize};

use crate::printable::one_line;

/// Of a whole tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    pub digest: String,
    pub entries: u64,
    pub files: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    Copied(Sum),
    Failed { reason: String, message: String },
}

impl Outcome {
    /// None where a mover has not written it.
    pub fn parse(text: &str) -> Option<Self> {
        match serde_json::from_str(text).ok()? {
            Self::Copied(sum) if sum.digest.len() > 128 || !sum.digest.is_ascii() => None,
            Self::Copied(sum) => Some(Self::Copied(sum)),
            Self::Failed { reason, message } => {
                Some(Self::Failed { reason: one_line(&reason), message: one_line(&message) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_message_is_read_and_made_printable() {
        let copied = r#"{"copied":{"digest":"sha256:ab","entries":3,"files":2,"bytes":8}}"#;
        let sum = Sum { digest: "sha256:ab".to_owned(), entries: 3, files: 2, bytes: 8 };
        assert_eq!(Outcome::parse(copied), Some(Outcome::Copied(sum)));
        let failed = r#"{"failed":{"reason":"NoSpace","message":"full\nkosmos-csi WARN all is well"}}"#;
        let Some(Outcome::Failed { reason, message }) = Outcome::parse(failed) else { panic!("it is one") };
        assert!(reason == "NoSpace" && !message.contains('\n'), "{message}");
        for other in ["", "{}", r#"{"copied":{"digest":"x"}}"#, "signal: killed"] {
            assert_eq!(Outcome::parse(other), None, "{other}");
        }
    }
}
