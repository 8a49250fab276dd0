//! The abstract solver: graphs, schedules, chains.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![expect(unreachable_pub, reason = "modules of one test crate")]

mod chains;
mod load;
mod random;
mod schedules;
mod solver;
