//! Whether volumes can be made in a host, by what it shows to whoever may read a few kinds there: no member is asked, and no Secret is
//! read.

use std::collections::BTreeMap;

use super::{
    listing::Listing,
    status::{Holder, Line, begin, held, line, screen},
};
use domain::{some_of::some_of, volume::quantity};
use leaf::capacity::UNLIMITED;

#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Of the program that asks.
    pub version: String,
    /// None: the host has no such object.
    pub driver: Option<DriverObject>,
    /// Who works in the background; likewise the sidecars.
    pub leader: Option<Holder>,
    /// csi-provisioner is not looked for.
    pub without_provisioner: bool,
    pub provisioner: Option<Holder>,
    pub attacher: Option<Holder>,
    pub classes: Vec<Class>,
    pub rooms: Vec<Room>,
}

/// What the host's CSIDriver object wants to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverObject {
    /// The scheduler is told how much room members have.
    pub tells_room: bool,
    pub attaches: bool,
}

/// A class of the host that has this driver's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub name: String,
    /// Why its parameters are refused, where they are.
    pub refused: Option<String>,
    pub waits_for_pod: bool,
}

/// What the scheduler is told that a member has for a class: once, or once for each of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    pub class: String,
    pub member: String,
    pub free: u64,
}

/// Members that are named where there are many.
const TOLD: usize = 5;
const MI: u64 = 1 << 20;

/// And whether all is well.
pub fn listing(seen: &Seen) -> (Listing, bool) {
    screen("Verification", &seen.lines())
}

impl Seen {
    fn lines(&self) -> Vec<Line> {
        let wanted = self.driver.unwrap_or_default();
        let mut lines = begin(&self.version, self.driver.is_some(), self.leader.as_ref());
        let sidecars = [
            (!self.without_provisioner, "csi-provisioner", &self.provisioner),
            (wanted.attaches, "csi-attacher", &self.attacher),
        ];
        let sidecars = sidecars.into_iter().filter(|(is_wanted, ..)| *is_wanted);
        lines.extend(sidecars.map(|(_, name, by)| held(name, "it has never worked here", by.as_ref())));
        if self.classes.is_empty() {
            lines.push(line("classes", "none has the provisioner kosmos.csi.io yet", true));
        }
        lines.extend(self.classes.iter().map(|class| self.class(class, wanted.tells_room)));
        if wanted.tells_room {
            lines.extend(self.members());
        }
        lines
    }

    fn class(&self, class: &Class, tells_room: bool) -> Line {
        let what = format!("class {}", class.name);
        if let Some(refused) = &class.refused {
            return line(&what, refused, false);
        }
        if !(tells_room && class.waits_for_pod) {
            return line(&what, "can be used; the scheduler gets no storage capacity for it", true);
        }
        let rooms = sums(&self.rooms, |room| room.class == class.name);
        let some = rooms.iter().filter(|(_, free)| **free > 0);
        let some: Vec<String> = some.map(|(member, free)| format!("{member} ({})", size(*free))).collect();
        if rooms.is_empty() {
            return line(&what, "no member has reported room for it yet", true);
        }
        if some.is_empty() {
            let all = some_of(rooms.keys(), TOLD);
            let state = format!("no member has room for it ({all}): `kosmos-csi doctor` says why");
            return line(&what, state, false);
        }
        line(&what, format!("room in {}", some_of(some, TOLD)), true)
    }

    /// A member that takes nothing new just now is no fault of what is installed here.
    fn members(&self) -> Vec<Line> {
        let rooms = sums(&self.rooms, |_| true);
        if rooms.is_empty() {
            let state =
                "none has reported its room yet: `kosmos-csi member add` adds one, which reports within a minute";
            return vec![line("members", state, true)];
        }
        let all = some_of(rooms.keys(), TOLD);
        let mut lines = vec![line("members", format!("{}: {all}", rooms.len()), true)];
        let state = "no room for any class: it is cordoned, does not answer, is full, or lacks the StorageClasses that the classes name";
        let closed = rooms.iter().filter(|(_, free)| **free == 0);
        lines.extend(closed.map(|(member, _)| line(&format!("member {member}"), state, true)));
        lines
    }
}

/// By member.
fn sums(rooms: &[Room], is_meant: impl Fn(&Room) -> bool) -> BTreeMap<&str, u64> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for room in rooms.iter().filter(|room| is_meant(room)) {
        let sum = sums.entry(room.member.as_str()).or_default();
        *sum = sum.saturating_add(room.free);
    }
    sums
}

fn size(free: u64) -> String {
    match free {
        unlimited if unlimited >= UNLIMITED => "any size".to_owned(),
        much if much >= MI => quantity::print(much - much % MI),
        little => quantity::print(little),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::Form;

    fn room(class: &str, member: &str, free: u64) -> Room {
        Room { class: class.to_owned(), member: member.to_owned(), free }
    }

    fn class(name: &str) -> Class {
        Class { name: name.to_owned(), refused: None, waits_for_pod: true }
    }

    fn installed() -> Seen {
        let works = |pod: &str| Some(Holder { identity: pod.to_owned(), age: 3 });
        Seen {
            version: "0.1.0".to_owned(),
            driver: Some(DriverObject { tells_room: true, attaches: true }),
            leader: works("controller-1"),
            provisioner: works("controller-2"),
            attacher: works("controller-1"),
            ..Seen::default()
        }
    }

    fn with_members() -> Seen {
        let rooms = vec![room("fast", "m0", 3 << 30), room("fast", "m0", 2 << 30), room("fast", "m1", 0)];
        Seen { classes: vec![class("fast")], rooms, ..installed() }
    }

    #[test]
    fn screen_says_who_works_and_where_there_is_room() {
        let at_once = Class { waits_for_pod: false, ..class("now") };
        let seen = Seen { classes: vec![class("fast"), at_once, class("new")], ..with_members() };
        let (listing, is_well) = listing(&seen);
        listing.has_rows(&[
            "driver            CSIDriver kosmos.csi.io is there",
            "leader            controller-1, which renewed its lease 3s ago",
            "csi-provisioner   controller-2, which renewed its lease 3s ago",
            "csi-attacher      controller-1, which renewed its lease 3s ago",
            "class fast        room in m0 (5Gi)",
            "class now         can be used; the scheduler gets no storage capacity for it",
            "class new         no member has reported room for it yet",
            "members           2: m0, m1",
            "member m1         no room for any class: it is cordoned, does not answer, is full, or lacks the StorageClasses that the classes name",
        ]);
        assert!(is_well, "a member's outage is none of the host's");
    }

    #[test]
    fn release_without_classes_and_members_is_well_and_says_what_comes_next() {
        let (listing, is_well) = listing(&installed());
        let told = listing.print(Form::Table);
        assert!(is_well && told.contains("none has the provisioner") && told.contains("member add"), "{told}");
    }

    #[test]
    fn what_keeps_volumes_from_being_made_is_not_well() {
        let slip = Class { refused: Some("unknown parameter".to_owned()), ..class("fast") };
        let full = vec![room("fast", "m0", 0), room("fast", "m1", 0), room("slow", "m1", 1)];
        for (seen, row) in [
            (Seen { driver: None, ..with_members() }, "driver            NOT WELL: CSIDriver kosmos.csi.io is missing"),
            (Seen { leader: None, ..with_members() }, "leader            NOT WELL: no controller has ever"),
            (Seen { provisioner: None, ..with_members() }, "csi-provisioner   NOT WELL: it has never worked here"),
            (
                Seen { attacher: Some(Holder { identity: "a".to_owned(), age: 600 }), ..with_members() },
                "csi-attacher      NOT WELL: none: a last renewed",
            ),
            (Seen { classes: vec![slip], ..with_members() }, "class fast        NOT WELL: unknown parameter"),
            (Seen { rooms: full, ..with_members() }, "class fast        NOT WELL: no member has room for it (m0, m1)"),
        ] {
            let (listing, is_well) = listing(&seen);
            let told = listing.print(Form::Table);
            assert!(!is_well && told.lines().any(|line| line.starts_with(row)), "{row}: {told}");
        }
    }

    #[test]
    fn sidecar_that_is_not_wanted_is_not_looked_for() {
        let none = Seen { driver: Some(DriverObject::default()), provisioner: None, attacher: None, ..with_members() };
        let (listing, is_well) = listing(&Seen { without_provisioner: true, ..none });
        let told = listing.print(Form::Table);
        assert!(is_well && !told.contains("csi-") && !told.contains("members"), "{told}");
    }

    #[test]
    fn volumes_are_made_by_csi_provisioner_also_where_the_scheduler_is_told_of_no_room() {
        let driver = Some(DriverObject { tells_room: false, attaches: true });
        let (listing, is_well) = listing(&Seen { driver, provisioner: None, ..with_members() });
        let told = listing.print(Form::Table);
        assert!(!is_well && told.contains("csi-provisioner   NOT WELL: it has never worked here"), "{told}");
    }

    #[test]
    fn room_is_told_as_people_read_it_and_of_many_members_some_are_named() {
        assert_eq!([1, MI + 1, 5 << 30, UNLIMITED].map(size), ["1", "1Mi", "5Gi", "any size"]);
        let seven = (0..7).map(|at| format!("m{at}"));
        assert_eq!(some_of(seven, TOLD), "m0, m1, m2, m3, m4 and 2 more");
    }
}
