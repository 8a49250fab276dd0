//! The planner, without a device: policies, schedules, placement, proofs.

mod builder;
mod models;
mod limits;
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
