//! Where Revolve divides a chain of equal steps (Griewank and Walther, *Algorithm
//! 799: Revolve*, ACM TOMS 26, 2000); [`revolve_extra`] has the counts.

use crate::solve::revolve_extra;

/// How many of `length` steps (2 or more) to advance from the first state, which is
/// held, before the next one is: the `i` with the least
/// `i + extra(i, s) + extra(length - i, s - 1)`.
pub(crate) fn advance(length: usize, slots: usize) -> usize {
    if slots < 2 {
        return length - 1;
    }
    // A count beyond 64 bits is no candidate.
    let extra = |steps: usize, slots: usize| revolve_extra(steps as u64, slots as u64).unwrap_or(u64::MAX);
    let cost = |i: usize| extra(i, slots).saturating_add(extra(length - i, slots - 1)).saturating_add(i as u64);
    (1..length).min_by_key(|&i| cost(i)).unwrap_or(length - 1)
}
