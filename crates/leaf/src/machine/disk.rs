//! A disk of a virtual machine, whatever kind of machine it is, and what follows from how it stands. Pure.

use domain::volume::{VolumeHash, place::hashed_name};

/// What a disk is called, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskName {
    /// Among the machine's volumes.
    pub name: String,
    pub claim: String,
    /// What the guest sees, where we say it.
    pub serial: String,
    /// Who writes it into the machine.
    pub manager: String,
}

impl DiskName {
    pub fn new(hash: VolumeHash) -> Self {
        let name = hashed_name(hash);
        Self { claim: name.clone(), name, serial: hash.prefix(), manager: format!("kosmos-csi-{hash}") }
    }
}

/// How a disk stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// The machine is asked to have it, of this claim.
    pub asked: Option<String>,
    /// The machine has something of it, or is about to lose it.
    pub left: bool,
    /// A request about it has not been looked at yet.
    pub queued: bool,
    /// It can be used: names that it may have in the guest.
    pub there: Option<Vec<String>>,
    pub trouble: Option<String>,
}

/// The next step towards having it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attaching {
    Add,
    Await,
    Done(Vec<String>),
    /// The name stands for another claim.
    Taken(String),
}

/// The next step towards being rid of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detaching {
    Remove,
    Await,
    Done,
}

impl Disk {
    /// What a step towards having it says along the way is no news.
    pub(super) fn tells_more_than(&self, before: &Self) -> bool {
        let plain = |disk: &Self| Self { left: disk.left && disk.asked.is_none(), ..disk.clone() };
        plain(self) != plain(before)
    }

    pub fn attaching(&self, wanted: &DiskName) -> Attaching {
        match &self.asked {
            Some(claim) if *claim != wanted.claim => Attaching::Taken(claim.clone()),
            Some(_) => self.there.clone().map_or(Attaching::Await, Attaching::Done),
            // One of before is on its way out.
            None if self.left || self.queued => Attaching::Await,
            None => Attaching::Add,
        }
    }

    pub fn detaching(&self, wanted: &DiskName) -> Detaching {
        match &self.asked {
            Some(claim) if *claim == wanted.claim => Detaching::Remove,
            None if self.left || self.queued => Detaching::Await,
            // Nothing, or somebody else's under the same name.
            _ => Detaching::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::volume::HostId;

    fn wanted() -> DiskName {
        DiskName::new(VolumeHash::new(&HostId("h".to_owned()), "pvc-1"))
    }

    #[test]
    fn disk_is_added_once_and_only_when_nothing_of_it_is_left() {
        let ours = Disk { asked: Some(wanted().claim), ..Disk::default() };
        let there = Disk { there: Some(vec!["wwn".to_owned()]), left: true, ..ours.clone() };
        assert_eq!(Disk::default().attaching(&wanted()), Attaching::Add);
        assert_eq!(Disk { left: true, ..Disk::default() }.attaching(&wanted()), Attaching::Await);
        assert_eq!(Disk { queued: true, ..Disk::default() }.attaching(&wanted()), Attaching::Await);
        assert_eq!(ours.attaching(&wanted()), Attaching::Await);
        assert_eq!(there.attaching(&wanted()), Attaching::Done(vec!["wwn".to_owned()]));
        let other = Disk { asked: Some("other".to_owned()), ..there };
        assert_eq!(other.attaching(&wanted()), Attaching::Taken("other".to_owned()));
    }

    #[test]
    fn disk_is_detached_when_neither_asked_for_nor_left() {
        let ours = Disk { asked: Some(wanted().claim), left: true, ..Disk::default() };
        assert_eq!(ours.detaching(&wanted()), Detaching::Remove);
        assert_eq!(Disk { left: true, ..Disk::default() }.detaching(&wanted()), Detaching::Await);
        assert_eq!(Disk::default().detaching(&wanted()), Detaching::Done);
        let other = Disk { asked: Some("other".to_owned()), left: true, ..Disk::default() };
        assert_eq!(other.detaching(&wanted()), Detaching::Done, "it is not ours");
    }

    #[test]
    fn step_along_the_way_is_no_news() {
        let ours = Disk { asked: Some(wanted().claim), ..Disk::default() };
        let begun = Disk { left: true, ..ours.clone() };
        let there = Disk { there: Some(Vec::new()), ..begun.clone() };
        let going = Disk { left: true, ..Disk::default() };
        assert!(!begun.tells_more_than(&ours));
        assert!(
            there.tells_more_than(&begun) && going.tells_more_than(&there) && Disk::default().tells_more_than(&going)
        );
        assert!(Disk { trouble: Some("no slot".to_owned()), ..begun.clone() }.tells_more_than(&begun));
    }

    #[test]
    fn names_are_short_enough_for_all_who_read_them() {
        let disk = wanted();
        assert_eq!((disk.name.len(), disk.serial.len()), (34, 16));
        assert!(disk.manager.len() <= 128);
    }
}
