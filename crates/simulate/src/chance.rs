//! Chance drawn from a seed: the same seed gives the same names, delays and faults again.

use std::sync::{Mutex, PoisonError};

/// A small generator (splitmix64) that many may draw from.
#[derive(Debug)]
pub struct Chance(Mutex<u64>);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// What is drawn about one thing, whatever is drawn about others.
    pub fn about(seed: u64, thing: &str) -> Self {
        let mixed = thing.bytes().fold(0xcbf2_9ce4_8422_2325, |mixed: u64, byte| {
            (mixed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self::new(seed ^ mixed)
    }

    pub fn draw(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not zero.
    pub fn below(&self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    /// True in `per_mille` of a thousand draws.
    pub fn happens(&self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// What the API server appends to `generateName`.
    pub fn suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut rest = self.draw();
        let mut letter = || {
            let at = rest % LETTERS.len() as u64;
            rest /= LETTERS.len() as u64;
            LETTERS.get(usize::try_from(at).unwrap_or(0)).map_or('x', |byte| char::from(*byte))
        };
        (0..5).map(|_| letter()).collect()
    }

    /// A random UUID in its usual form.
    pub fn uuid(&self) -> String {
        let (high, low) = (self.draw(), self.draw());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_draws_the_same() {
        let (one, other) = (Chance::new(7), Chance::new(7));
        assert_eq!((one.uuid(), one.suffix()), (other.uuid(), other.suffix()));
        assert_ne!(one.uuid(), one.uuid());
        assert_eq!((one.suffix().len(), one.uuid().len()), (5, 36));
    }
}
