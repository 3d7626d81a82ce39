//! What can be asked of the driver among simulated members.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Question {
    /// What a replica takes when nothing happens
    Idle,
    /// Whether volumes are made as fast as with few members
    Rate,
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
            Self::Start => "started again on half a processor",
            Self::Files => "started with 1024 open files",
            Self::Takeover => "after a kill",
            Self::Agent => "agent",
        };
        let volumes = if volumes > 0 { format!(" with {volumes} volumes each") } else { String::new() };
        format!("{members} members{volumes}, {what}")
    }

    /// How long it takes, at most.
    pub fn expected(self) -> Duration {
        Duration::from_mins(match self {
            Self::Files => 3,
            Self::Takeover | Self::Rate => 8,
            Self::Agent => 10,
            Self::Start => 15,
            Self::Idle => 20,
        })
    }
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
