//! Policies that choose values by what makes them and by name.

use crate::checkpoint::facts::Facts;
use crate::checkpoint::paths::Paths;
use crate::checkpoint::{Decision, Policy};
use crate::error::{Error, Result};
use crate::fuse::program::{Pass, Phase, Program, StorageId};

/// The decision of [`Policy::Nothing`], [`Policy::Kinds`], [`Policy::Only`],
/// [`Policy::AllBut`] or [`Policy::Selective`].
///
/// # Errors
/// [`Error::Policy`] for a kind or name that the recording does not have.
pub(crate) fn decision(facts: &Facts<'_>, policy: &Policy) -> Result<Decision> {
    let program = facts.program;
    match policy {
        Policy::Kinds(kinds) => {
            let known = |kind: &String| forward(program).any(|pass| pass.kind.starts_with(kind.as_str()));
            require(policy, "kind", kinds, known, || forward(program).map(|pass| pass.kind.to_owned()).collect())?;
        }
        Policy::Only(names) | Policy::AllBut(names) => {
            let named = || program.storages.iter().filter(|s| s.named).map(|s| s.name.clone());
            require(policy, "name", names, |name| named().any(|n| n == *name), || named().collect())?;
        }
        _ => {}
    }
    let saves = |pass: &Pass, storage: StorageId| match policy {
        Policy::Kinds(kinds) => kinds.iter().any(|kind| pass.kind.starts_with(kind.as_str())),
        Policy::Only(names) => names.contains(&program.storage(storage).name),
        Policy::AllBut(names) => !names.contains(&program.storage(storage).name),
        Policy::Selective => is_dear(program, pass),
        _ => false,
    };
    let over_segments = !program.segments.is_empty() && !matches!(policy, Policy::AllBut(_) | Policy::Selective);
    let mut decision = Decision::of_paths(if over_segments {
        let outermost = program.segments.iter().filter(|s| s.parent.is_none()).count();
        Paths::of_groups(program, &(0..outermost).map(Some).collect::<Vec<_>>(), true)
    } else {
        Paths::flat(program)
    });
    for pass in forward(program) {
        for made in pass.operands.iter().filter_map(|o| o.made()) {
            match (saves(pass, made), over_segments) {
                (true, true) => decision.kept.push(made),
                (false, false) => decision.evicted.push(made),
                _ => {}
            }
        }
    }
    decision.evicted.sort_unstable();
    Ok(decision)
}

fn forward(program: &Program) -> impl Iterator<Item = &Pass> {
    program.passes.iter().filter(|pass| pass.phase == Phase::Forward)
}

/// Refuses what the recording does not have, and says what it has.
fn require(
    policy: &Policy,
    what: &str,
    wanted: &[String],
    known: impl Fn(&String) -> bool,
    all: impl Fn() -> Vec<String>,
) -> Result<()> {
    let Some(missing) = wanted.iter().find(|&item| !known(item)) else { return Ok(()) };
    let mut all = all();
    all.sort_unstable();
    all.dedup();
    let has = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    Err(Error::Policy {
        policy: policy.to_string(),
        detail: format!("no value of this recording has the {what} {missing}; it has {has}"),
    })
}

/// True if running a pass again takes long for the bytes that it makes: a sum of
/// products, unless its result is larger than what it is made of.
fn is_dear(program: &Program, pass: &Pass) -> bool {
    const PRODUCTS: [&str; 3] = ["matmul", "conv", "attention"];
    if !PRODUCTS.iter().any(|kind| pass.kind.starts_with(kind)) {
        return false;
    }
    let bytes = |storage: StorageId| program.storage(storage).bytes;
    let read: u64 = pass.operands.iter().filter_map(|o| o.read()).map(bytes).sum();
    let made: u64 = pass.operands.iter().filter_map(|o| o.made()).map(bytes).sum();
    made <= read
}
