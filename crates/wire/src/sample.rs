//! Made-up messages for tests, fuzzing and benchmarks (feature `sample`).

use bytes::Bytes;

use crate::codec::{Nullable, Records, Str, Uuid};
use crate::errors::ErrorCode;
use crate::ids::TopicId;

/// A source of values, the same for the same seed. Not a source of entropy.
pub struct Gen(u64);

impl Gen {
    /// A source that follows `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits (splitmix64).
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub const fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// True once in `n` times.
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Bytes of all lengths that are encoded differently.
    fn bytes(&mut self) -> Vec<u8> {
        let lengths = [0, 1, 9, 126, 127, 128, 1500];
        let length = lengths[self.below(lengths.len() as u64) as usize];
        (0..length).map(|_| self.bits() as u8).collect()
    }
}

/// A type whose values can be made up.
pub trait Sample: Sized {
    /// A value that the version can carry.
    fn sample(g: &mut Gen, version: i16) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(impl Sample for $type {
            fn sample(g: &mut Gen, _: i16) -> Self {
                match g.below(6) {
                    0 => 0,
                    1 => 1,
                    2 => Self::MIN,
                    3 => Self::MAX,
                    4 => (0 as Self).wrapping_sub(1),
                    _ => g.bits() as Self,
                }
            }
        })*
    };
}

integers! { i8 i16 i32 i64 u16 }

impl Sample for bool {
    fn sample(g: &mut Gen, _: i16) -> Self {
        g.one_in(2)
    }
}

impl Sample for f64 {
    fn sample(g: &mut Gen, _: i16) -> Self {
        g.bits() as Self / 3.0
    }
}

impl Sample for ErrorCode {
    fn sample(g: &mut Gen, _: i16) -> Self {
        Self::ALL[g.below(Self::ALL.len() as u64) as usize]
    }
}

impl Sample for TopicId {
    fn sample(g: &mut Gen, version: i16) -> Self {
        Self(Uuid::sample(g, version).0)
    }
}

impl Sample for Uuid {
    fn sample(g: &mut Gen, _: i16) -> Self {
        Self((u128::from(g.bits()) << 64 | u128::from(g.bits())).to_be_bytes())
    }
}

impl Sample for Str {
    fn sample(g: &mut Gen, _: i16) -> Self {
        let letters = ['a', 'z', '.', '-', '0', '\u{e9}', '\u{1f30a}'];
        let text: String = g
            .bytes()
            .iter()
            .map(|byte| letters[usize::from(*byte) % letters.len()])
            .collect();
        Self::from(text)
    }
}

impl Sample for Bytes {
    fn sample(g: &mut Gen, _: i16) -> Self {
        g.bytes().into()
    }
}

impl Sample for Records {
    fn sample(g: &mut Gen, version: i16) -> Self {
        (0..g.below(4)).map(|_| Bytes::sample(g, version)).collect()
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(g: &mut Gen, version: i16) -> Self {
        (0..g.below(4)).map(|_| T::sample(g, version)).collect()
    }
}

impl<T: Sample + Nullable> Sample for Option<T> {
    fn sample(g: &mut Gen, version: i16) -> Self {
        if g.one_in(4) {
            None
        } else {
            Some(T::sample(g, version))
        }
    }
}
