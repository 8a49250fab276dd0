//! Revolve: chains of equal steps with a given number of states held.
//!
//! ```text
//! beta(s, r) = C(s + r, s)       the longest chain that s states and r re-runs per step reach
//! extra(l, s) = r l - beta(s + 1, r - 1)   for beta(s, r - 1) < l <= beta(s, r)
//! extra(l, s) = min over 0 < i < l of i + extra(i, s) + extra(l - i, s - 1)
//! ```
//!
//! Source: Griewank and Walther, *Algorithm 799: Revolve*, ACM TOMS 26 (2000).

/// C(s + r, s), saturating.
fn beta(s: u64, r: u64) -> u64 {
    let mut product: u128 = 1;
    for i in 1..=u128::from(s.min(r)) {
        product = product * (u128::from(s.max(r)) + i) / i;
        if product > u128::from(u64::MAX) {
            return u64::MAX;
        }
    }
    product as u64
}

/// The least number of steps that are run again on the way back through a
/// chain of `length` steps when at most `slots` states are held, the first one
/// among them. Without slots, as with one.
pub(crate) fn extra(length: usize, slots: usize) -> u64 {
    let (length, slots) = (length as u64, slots.max(1) as u64);
    if length < 2 {
        return 0;
    }
    if slots == 1 {
        return length * (length - 1) / 2;
    }
    let mut r = 1;
    while beta(slots, r) < length {
        r += 1;
    }
    r * length - beta(slots + 1, r - 1)
}

/// How many steps to advance from the first state before the next one is held.
/// `length` is at least 2.
pub(crate) fn advance(length: usize, slots: usize) -> usize {
    if slots < 2 {
        return length - 1;
    }
    let cost = |i: usize| i as u64 + extra(i, slots) + extra(length - i, slots - 1);
    (1..length).min_by_key(|&i| cost(i)).unwrap_or(length - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recurrence, all the way down.
    fn by_recurrence(most: usize, slots: usize) -> Vec<Vec<u64>> {
        let mut table = vec![vec![0; most + 1]; slots + 1];
        for l in 0..=most as u64 {
            table[1][l as usize] = l * l.saturating_sub(1) / 2;
        }
        for s in 2..=slots {
            for l in 2..=most {
                table[s][l] = (1..l).map(|i| i as u64 + table[s][i] + table[s - 1][l - i]).min().unwrap_or_default();
            }
        }
        table
    }

    #[test]
    fn closed_form_and_recurrence_agree() {
        let table = by_recurrence(80, 12);
        for (s, row) in table.iter().enumerate().skip(1) {
            for (l, &expected) in row.iter().enumerate().skip(1) {
                assert_eq!(extra(l, s), expected, "{l} steps, {s} states");
            }
        }
    }

    #[test]
    fn published_values() {
        for (l, s, expected) in [(10, 3, 15), (32, 5, 68), (100, 10, 222), (1000, 20, 2747), (35, 3, 105), (36, 3, 110)]
        {
            assert_eq!(extra(l, s), expected, "{l} steps, {s} states");
        }
    }
}
