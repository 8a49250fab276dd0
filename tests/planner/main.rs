//! The planner, without a device: policies, schedules, placement, proofs.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![expect(unreachable_pub, reason = "modules of one test crate")]

mod builder;
mod choices;
mod limits;
mod models;
mod mutations;
mod policies;
mod random;
mod speed;

use remat::plan::{Plan, plan};
use remat::profile::DeviceProfile;

/// Plans and proves, also where debug assertions are off.
pub fn planned(program: &remat::fuse::program::Program, policy: &str) -> remat::error::Result<Plan> {
    let profile = DeviceProfile::default();
    let plan = plan(program, &policy.parse()?, &profile)?;
    remat::plan::check(program, &plan, &profile)?;
    Ok(plan)
}
