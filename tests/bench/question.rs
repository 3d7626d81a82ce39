//! What can be asked of the driver among simulated members.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;

/// The goals are of so many members and more.
pub const MANY: usize = 1000;
/// What happens in a time in which nothing does is told of each of so many parts of it as well.
pub const THIRDS: u32 = 3;
pub const OF_A_THIRD: &str = "idle: of a processor, by thirds of the time (%)";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Question {
    /// What a replica takes when nothing happens
    Idle,
    /// Whether volumes are made as fast as with few members
    Rate,
    /// Whether those who want volumes of others wait longer where one member is dead, slow or floods
    Beside,
    /// What a start takes of a processor until all is read
    Ready,
    /// How long a start takes on half a processor, also where one member in ten is dead
    Start,
    /// Whether all are served by a process that begins with 1024 open files
    Files,
    /// How soon another replica works in the background after a kill
    Takeover,
    /// What the agent of virtual nodes takes when nothing happens
    Agent,
}

impl Question {
    /// As a heading.
    pub fn part(self, members: usize, volumes: u32) -> String {
        let what = match self {
            Self::Idle => "idle",
            Self::Rate => "at work",
            Self::Beside => "beside one in trouble",
            Self::Ready => "started again",
            Self::Start => "started again on half a processor",
            Self::Files => "started with 1024 open files",
            Self::Takeover => "after a kill",
            Self::Agent => "agent",
        };
        let volumes = if volumes > 0 { format!(" with {volumes} volumes each") } else { String::new() };
        format!("{members} members{volumes}, {what}")
    }

    /// What the members' storage needs for a volume: where times are compared, more than what differs from call to call.
    pub fn storage_takes(self) -> Duration {
        Duration::from_millis(if self == Self::Beside { 50 } else { 0 })
    }

    /// How often it is asked, where all is asked so often.
    pub fn rounds(self, rounds: usize) -> usize {
        match self {
            Self::Rate | Self::Beside | Self::Ready | Self::Start | Self::Files | Self::Takeover => rounds,
            Self::Idle | Self::Agent => 1,
        }
    }

    /// How long so many rounds take, at most.
    pub fn expected(self, members: usize, rounds: usize) -> Duration {
        let start = Duration::from_mins(1 + members.div_ceil(500) as u64);
        let each = match self {
            Self::Rate => Duration::from_mins(rounds as u64 + 1),
            // The first round is not counted, and each has four turns.
            Self::Beside => Duration::from_mins(3 * (rounds as u64 + 1)),
            Self::Ready | Self::Start | Self::Files | Self::Takeover => {
                Duration::from_secs(start.as_secs() * rounds as u64)
            }
            Self::Agent => Duration::from_mins(7),
            Self::Idle => idle(members) + start,
        };
        start + each
    }
}

/// For how long nothing happens: watches are begun again within it where there are as many members as goals are of, and what is listed
/// seldom is listed once. With fewer, less is looked at.
pub fn idle(members: usize) -> Duration {
    Duration::from_mins(if members >= MANY { 15 } else { 5 })
}

/// What is asked.
#[derive(Debug)]
pub struct Plan {
    /// Of members.
    pub counts: Vec<usize>,
    /// In each of them.
    pub volumes: u32,
    pub asked: Vec<Question>,
    pub rounds: usize,
    pub minutes: Option<u64>,
    pub is_strict: bool,
    pub json: PathBuf,
}
