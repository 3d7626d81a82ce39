//! What holds at every moment, and at the end.

use super::{Bounds, End, Host, Mark, Moving, NEW, Part, Phase, Seen, SeenLeaf, World, next};

impl World {
    /// What holds at every moment.
    pub(in super::super) fn check(&self) -> Result<(), &'static str> {
        let (source, copy) = (&self.source, &self.copy);
        let kept = source.seen.volume.is_some_and(|volume| volume.retained);
        let is_lent = source.seen.volume.is_some_and(|volume| volume.lent);
        let is_decided = matches!(self.phase, Phase::Switching | Phase::Finishing | Phase::Succeeded);
        let at_home = source.seen.home && copy.seen.home && !self.copy_is_forgotten;
        let is_known = !self.has_another(Part::Source);
        let is_alone = is_known && self.came_back != Some(Part::Copy);
        for (is_so, broken) in [
            (self.host != Host::Former && !is_decided, "the host's volume is replaced, and nothing was decided"),
            (is_alone && at_home, "both leaves are where pods look for one"),
            (source.mounts() && source.attached, "a mover reads what a node may write"),
            (source.mounts() && source.seen.home, "a mover reads what pods may write"),
            (
                is_known && self.phase == Phase::Switching && copy.content != source.content,
                "the host is given another content",
            ),
            (is_decided && (source.mounts() || copy.mounts()), "a mover has a volume that pods may have"),
            (is_known && (is_decided || is_lent) && !kept, "the source is not kept"),
            (is_known && is_decided && source.seen.home, "the source is where pods look for the volume"),
        ] {
            if is_so {
                return Err(broken);
            }
        }
        self.is_seen_enough()
    }

    /// What is not looked at would change nothing.
    fn is_seen_enough(&self) -> Result<(), &'static str> {
        let seen = self.seen(true, true, true);
        let unread = Some(SeenLeaf::default());
        let source = if self.phase.goes_by_source() { seen.source } else { unread };
        let copy = if self.phase.goes_by_copy() { seen.copy } else { unread };
        let step = next(&seen);
        if next(&Seen { source, copy, ..seen }) != step {
            return Err("what is next goes by a leaf that is not looked at");
        }
        self.begins_in_time(step)?;
        self.keeps_what_may_be_all(&seen)
    }

    /// The source may be gone for good where its member is not seen, or has something else.
    fn keeps_what_may_be_all(&self, seen: &Seen) -> Result<(), &'static str> {
        let is_kept = self.copy.seen.volume.is_some_and(|volume| volume.retained && volume.moving);
        let silent = Seen { source: None, ..*seen };
        let another = self.has_another(Part::Source).then_some(*seen);
        let is_removed = another.into_iter().chain([silent]).any(|seen| next(&seen) == Moving::RemoveCopy);
        if self.verified && is_kept && is_removed { Err("a copy goes that may be all there is") } else { Ok(()) }
    }

    /// No node would begin it.
    fn begins_in_time(&self, step: Moving) -> Result<(), &'static str> {
        let claimed = match step {
            Moving::StartReceiver => &self.copy.seen,
            Moving::StartSender => &self.source.seen,
            _ => return Ok(()),
        };
        let is_there = claimed.yard && !claimed.leaving;
        if is_there { Ok(()) } else { Err("a mover is begun whose claim is not there, or on its way out") }
    }

    /// Nothing happens any more but what the driver does, and movers that do well: whether it succeeds, and by which steps.
    pub(in super::super) fn left_alone(&self, most: usize) -> Result<(bool, Vec<Moving>), &'static str> {
        let mut world = *self;
        (world.source.seen.used, world.source.attached) = (false, false);
        let mut steps = Vec::new();
        for _ in 0..most {
            world.check()?;
            if let Some(settled) = world.settled().into_iter().flatten().next() {
                world = settled;
            } else {
                match next(&world.seen(true, true, true)) {
                    Moving::Nothing | Moving::Stuck(..) => match world.late.take() {
                        Some((step, on)) => world.carry_out(step, &on),
                        None => return Ok((world.ended()?, steps)),
                    },
                    Moving::Await(_) => world = world.goes_well()?,
                    step => {
                        world.carry_out(step, &world.decided());
                        steps.push(step);
                    }
                }
            }
        }
        Err("it comes to no end")
    }

    fn goes_well(self) -> Result<Self, &'static str> {
        let mut well = Vec::new();
        let bounds = Bounds { failures: 0, claims: 0, moves: 0, is_used: false, forgets: false };
        self.movers(bounds, &mut |_, after| well.push(after));
        well.into_iter().next().ok_or("it waits for nothing")
    }

    /// Where a copy is all that is left of the data, as far as can be seen, and its move is called off, or cannot go on.
    fn keeps_the_copy(&self) -> Result<bool, &'static str> {
        let is_kept = self.copy.seen.volume.is_some_and(|volume| volume.retained);
        // A source that was opened meanwhile looks like one of a backup.
        let is_unsure = self.has_another(Part::Source) || self.came_back == Some(Part::Copy);
        let is_same = is_unsure || self.source_is_forgotten && self.copy.content == self.source.content;
        let is_all = is_same && self.verified;
        if is_kept && is_all { Ok(false) } else { Err("a person has to act, and need not") }
    }

    fn ended(&self) -> Result<bool, &'static str> {
        if matches!(next(&self.seen(true, true, true)), Moving::Stuck(..)) {
            return self.keeps_the_copy();
        }
        let (source, copy) = (&self.source.seen, &self.copy.seen);
        let of_source = source.volume.unwrap_or(NEW);
        let of_copy = copy.volume.unwrap_or(NEW);
        let succeeded = self.phase == Phase::Succeeded;
        let is_retired = of_source.moved && of_source.retained && !source.yard && !source.home;
        let is_as_it_was =
            source.home && !source.yard && source.mark == Mark::None && !of_source.lent && !of_source.moved;
        let is_ordinary = copy.home && !of_copy.moving && !of_copy.lent;
        let is_there = copy.home || copy.yard || copy.volume.is_some();
        let knows_source = !self.source_is_forgotten && !self.has_another(Part::Source);
        let knows_copy = !self.copy_is_forgotten && !self.has_another(Part::Copy);
        for (is_so, broken) in [
            (knows_source && source.end != End::None, "the sender is left"),
            (knows_copy && copy.end != End::None, "the receiver is left"),
            (knows_source && succeeded && !is_retired, "the source is not one that is kept"),
            (knows_copy && succeeded && !is_ordinary, "the copy is no ordinary leaf"),
            (knows_copy && !succeeded && is_there, "something of the copy is left"),
            (knows_source && !succeeded && !is_as_it_was, "the source is not as it was"),
        ] {
            if is_so {
                return Err(broken);
            }
        }
        Ok(succeeded)
    }
}
