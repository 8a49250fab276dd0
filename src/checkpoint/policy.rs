//! Policies as the user names them, and sizes in bytes.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A number of bytes that prints itself in binary units.
///
/// ```
/// use remat::checkpoint::ByteSize;
/// assert_eq!(ByteSize::mib(1100).bytes(), 1100 * 1024 * 1024);
/// assert_eq!(ByteSize::mib(1536).to_string(), "1.50 GiB");
/// assert_eq!("1.5GiB".parse::<ByteSize>()?, ByteSize::mib(1536));
/// # Ok::<(), remat::error::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ByteSize(u64);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl ByteSize {
    /// This many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// This many units of 1024 bytes; saturates.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n.saturating_mul(KIB))
    }

    /// This many units of 1024 * 1024 bytes; saturates.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n.saturating_mul(MIB))
    }

    /// This many units of 1024 * 1024 * 1024 bytes; saturates.
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        Self(n.saturating_mul(GIB))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl From<u64> for ByteSize {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            GIB.. => (GIB, "GiB"),
            MIB.. => (MIB, "MiB"),
            KIB.. => (KIB, "KiB"),
            bytes => return write!(f, "{bytes} B"),
        };
        write!(f, "{:.2} {name}", self.0 as f64 / unit as f64)
    }
}

impl FromStr for ByteSize {
    type Err = Error;

    /// Reads `123`, `64KiB`, `1.5 GiB`.
    fn from_str(text: &str) -> Result<Self> {
        let refuse = |detail: &str| Error::Argument {
            op: "ByteSize",
            argument: "text",
            value: text.to_owned(),
            detail: detail.to_owned(),
        };
        let digits_end = text.trim().find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.trim().len());
        let (number, suffix) = text.trim().split_at(digits_end);
        let number = number.trim();
        let unit = match suffix.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kib" => KIB,
            "mib" => MIB,
            "gib" => GIB,
            _ => return Err(refuse("the unit is one of B, KiB, MiB, GiB")),
        };
        if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) {
            let n: u64 = number.parse().map_err(|_| refuse("more than 2^64 bytes"))?;
            return n.checked_mul(unit).map(Self).ok_or_else(|| refuse("more than 2^64 bytes"));
        }
        let n: f64 = number.parse().map_err(|_| refuse("not a number of bytes, as 4194304 or 4MiB"))?;
        let bytes = (n * unit as f64).floor();
        if n.is_nan() || n < 0.0 {
            return Err(refuse("a size is not negative"));
        }
        if bytes >= u64::MAX as f64 {
            return Err(refuse("more than 2^64 bytes"));
        }
        Ok(Self(bytes as u64))
    }
}

/// Which values may be kept from forward to backward; the others are replayed.
///
/// Results are the same bits under every policy; only memory and time differ.
/// Printed and read as on the command line, in backticks below. A wish given by
/// [`crate::graph::Tensor::must_save`], [`crate::graph::Tensor::must_recompute`] or
/// [`crate::graph::Recorder::checkpoint_marked`] outranks every policy.
///
/// Policies by kind and name ([`Policy::Nothing`], [`Policy::Kinds`],
/// [`Policy::Only`]) save values inside segments; on a recording without
/// segments, among all values of the forward pass. What segments hand on is
/// saved in either case.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// `none`: keep everything that backward needs; replay nothing.
    #[default]
    None,
    /// `segments`: drop the interior of every `checkpoint` segment, nested ones as written.
    Segments,
    /// `every:N`: join each N outermost segments, in recorded order, to one.
    Every(usize),
    /// `sqrt`: join the outermost segments to the square root of their number.
    Sqrt,
    /// `revolve:N`: over the outermost segments, hold at most N states at a time,
    /// the first one among them, and re-run as few segments as that allows when
    /// all take the same time (Griewank and Walther, *Revolve*, 2000).
    Revolve(usize),
    /// `nothing`: save no value. With segments the same as `segments`.
    Nothing,
    /// `kinds:matmul,conv`: save what passes of these kinds make, recompute the
    /// rest. A kind is the name of an op or its beginning: `conv` is all convolutions.
    Kinds(Vec<String>),
    /// `only:NAME,..`: save the values given these names by
    /// [`crate::graph::Tensor::named`], recompute the rest.
    Only(Vec<String>),
    /// `all-but:NAME,..`: recompute the values given these names, save the rest.
    AllBut(Vec<String>),
    /// `selective`: recompute what is cheap for the bytes it takes (element-wise
    /// functions, masks, norms, softmax, products larger than their operands such
    /// as the scores of attention), save the rest; segments are not looked at
    /// (Korthikanti et al., *Reducing activation recomputation*, 2022).
    Selective,
    /// `least`: the smallest peak that the planner can reach.
    LeastMemory,
    /// `budget:BYTES` (or KiB, MiB, GiB): recompute as little as fits into this many bytes in all
    /// (`planned_peak_bytes`), or refuse, naming the least that would do.
    Budget(ByteSize),
    /// `budget:P%`: as [`Policy::Budget`], with the state and this share (0 to 1) of what
    /// [`Policy::None`] takes besides.
    BudgetFraction(f64),
}

/// What a policy may be called.
const KNOWN: &str = "none, segments, every:N, sqrt, revolve:N, nothing, kinds:KIND,.., only:NAME,.., \
                     all-but:NAME,.., selective, least, budget:BYTES or budget:P%";

fn split(list: &str) -> Vec<String> {
    list.split(',').map(|item| item.trim().to_owned()).collect()
}

impl Policy {
    /// Refuses numbers that mean nothing.
    ///
    /// # Errors
    /// [`Error::Policy`] for `every:0`, `revolve:0`, empty lists of kinds or names
    /// and shares outside 0 to 1.
    pub fn validate(&self) -> Result<()> {
        let detail = match self {
            Self::Every(0) => "groups of 0 segments do not exist; use every:1 or more",
            Self::Revolve(0) => "the first state is held in any case; use revolve:1 or more",
            Self::Kinds(list) | Self::Only(list) | Self::AllBut(list)
                if list.is_empty() || list.iter().any(|item| item.is_empty() || item.contains(',')) =>
            {
                "expected kinds or names separated by commas, as kinds:matmul,conv"
            }
            Self::BudgetFraction(share) if !(0.0..=1.0).contains(share) => {
                "a share is between 0% and 100% of what policy none takes beyond the state"
            }
            _ => return Ok(()),
        };
        Err(Error::Policy { policy: self.to_string(), detail: detail.to_owned() })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Segments => f.write_str("segments"),
            Self::Every(n) => write!(f, "every:{n}"),
            Self::Sqrt => f.write_str("sqrt"),
            Self::Revolve(n) => write!(f, "revolve:{n}"),
            Self::Nothing => f.write_str("nothing"),
            Self::Kinds(kinds) => write!(f, "kinds:{}", kinds.join(",")),
            Self::Only(names) => write!(f, "only:{}", names.join(",")),
            Self::AllBut(names) => write!(f, "all-but:{}", names.join(",")),
            Self::Selective => f.write_str("selective"),
            Self::LeastMemory => f.write_str("least"),
            Self::Budget(size) => write!(f, "budget:{}", size.bytes()),
            // Rounded to what a person can have meant: 0.07 * 100 is not 7.
            Self::BudgetFraction(share) => write!(f, "budget:{}%", (share * 1e14).round() / 1e12),
        }
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |detail: String| Error::Policy { policy: text.to_owned(), detail };
        let policy = match text.split_once(':') {
            None => match text {
                "none" => Self::None,
                "segments" => Self::Segments,
                "sqrt" => Self::Sqrt,
                "nothing" => Self::Nothing,
                "selective" => Self::Selective,
                "least" => Self::LeastMemory,
                _ => return Err(refuse(format!("not known; use {KNOWN}"))),
            },
            Some(("every", n)) => {
                Self::Every(n.parse().map_err(|_| refuse("N in every:N is a whole number from 1 on".to_owned()))?)
            }
            Some(("revolve", n)) => {
                Self::Revolve(n.parse().map_err(|_| refuse("N in revolve:N is a whole number from 1 on".to_owned()))?)
            }
            Some(("kinds", list)) => Self::Kinds(split(list)),
            Some(("only", list)) => Self::Only(split(list)),
            Some(("all-but", list)) => Self::AllBut(split(list)),
            Some(("budget", amount)) => match amount.strip_suffix('%') {
                Some(percent) => {
                    let percent: f64 = percent
                        .trim()
                        .parse()
                        .map_err(|_| refuse("P in budget:P% is a number from 0 to 100".to_owned()))?;
                    Self::BudgetFraction(percent / 100.0)
                }
                None => Self::Budget(amount.parse().map_err(|e: Error| refuse(e.to_string()))?),
            },
            Some(_) => return Err(refuse(format!("not known; use {KNOWN}"))),
        };
        policy.validate()?;
        Ok(policy)
    }
}

/// Splits `n` things in recorded order into `parts` groups, as evenly as
/// possible, the larger ones first: 9 in 5 is 2, 2, 2, 2, 1. More parts than
/// things give `n` groups of one.
///
/// # Errors
/// [`Error::Argument`] for no parts.
pub fn split_evenly(n: usize, parts: usize) -> Result<Vec<usize>> {
    if parts == 0 {
        return Err(Error::Argument {
            op: "split_evenly",
            argument: "parts",
            value: "0".to_owned(),
            detail: "there must be at least one part".to_owned(),
        });
    }
    let parts = parts.min(n);
    Ok((0..parts).map(|i| n / parts + usize::from(i < n % parts)).collect())
}

/// The smallest number whose square is at least `n`.
pub(crate) fn ceil_sqrt(n: usize) -> usize {
    let root = n.isqrt();
    root + usize::from(root * root < n)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn policies_print_as_they_are_read() {
        for text in [
            "none",
            "segments",
            "every:1",
            "every:12",
            "sqrt",
            "budget:4096",
            "budget:50%",
            "budget:7%",
            "budget:33.3%",
            "budget:0%",
            "budget:100%",
            "budget:0",
            "revolve:3",
            "nothing",
            "kinds:matmul,conv",
            "only:h",
            "all-but:scores,mask",
            "selective",
            "least",
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!("budget:2MiB".parse::<Policy>().unwrap(), Policy::Budget(ByteSize::mib(2)));
        assert_eq!("budget:1.5 GiB".parse::<Policy>().unwrap(), Policy::Budget(ByteSize::mib(1536)));
    }

    #[test]
    fn nonsense_is_a_typed_error() {
        for text in [
            "",
            "some",
            "every",
            "every:0",
            "every:-1",
            "every:x",
            "every:1.5",
            "budget:",
            "budget:-5",
            "budget:-1.5MiB",
            "budget:NaN",
            "budget:inf",
            "budget:5MB",
            "budget:-1%",
            "budget:101%",
            "budget:NaN%",
            "budget:99999999999999999999",
            "budget:17179869184GiB",
            "segments:2",
            "revolve:0",
            "revolve:",
            "kinds:",
            "only:a,,b",
            "all-but",
            "least:5",
        ] {
            let error = text.parse::<Policy>().unwrap_err();
            assert!(matches!(error, Error::Policy { .. }), "{text}: {error}");
        }
        assert!(Policy::BudgetFraction(f64::NAN).validate().is_err());
        assert!(Policy::BudgetFraction(-0.1).validate().is_err());
    }

    #[test]
    fn splits_are_even() {
        assert_eq!(split_evenly(9, 5).unwrap(), [2, 2, 2, 2, 1]);
        assert_eq!(split_evenly(10, 3).unwrap(), [4, 3, 3]);
        assert_eq!(split_evenly(3, 7).unwrap(), [1, 1, 1]);
        assert_eq!(split_evenly(6, 1).unwrap(), [6]);
        assert_eq!(split_evenly(0, 2).unwrap(), [0_usize; 0]);
        assert!(matches!(split_evenly(4, 0), Err(Error::Argument { .. })));
    }

    #[test]
    fn sizes_print_and_parse() {
        assert_eq!(ByteSize::new(512).to_string(), "512 B");
        assert_eq!(ByteSize::kib(3).to_string(), "3.00 KiB");
        assert_eq!(ByteSize::gib(u64::MAX).bytes(), u64::MAX);
        assert_eq!("64KiB".parse::<ByteSize>().unwrap(), ByteSize::kib(64));
    }

    #[test]
    fn roots_round_up() {
        let roots: Vec<usize> = [0, 1, 2, 4, 5, 8, 9, 10, 16, 17].iter().map(|&n| ceil_sqrt(n)).collect();
        assert_eq!(roots, [0, 1, 2, 2, 3, 3, 3, 4, 4, 5]);
    }
}
