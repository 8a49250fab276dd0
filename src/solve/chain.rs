//! Chains, for which optimal schedules are known.
//!
//! * [`revolve_extra`]: equal steps, restart states only (Griewank & Walther,
//!   "Algorithm 799: Revolve", 2000).
//! * [`mixed_steps`]: equal steps, a slot holds a restart state or what one
//!   step's backward needs (Maddison, "Schedules for mixed checkpointing", 2023).
//! * [`rotor`]: stages of different times and sizes (Beaumont et al., "Optimal
//!   checkpointing for heterogeneous chains", 2019).

use std::collections::HashMap;

/// The least number of forward steps that are run again when a chain of `steps`
/// equal steps is reversed with `slots` stored states, the first among them.
///
/// With `beta(s, r) = C(s + r, s)` and `r` such that
/// `beta(s, r - 1) < l <= beta(s, r)` it is `r * l - beta(s + 1, r - 1)`.
/// None if there is no slot, or if the number exceeds 64 bits.
#[must_use]
pub fn revolve_extra(steps: u64, slots: u64) -> Option<u64> {
    if steps <= 1 {
        return Some(0);
    }
    if slots == 0 {
        return None;
    }
    if slots == 1 {
        let product = u128::from(steps) * u128::from(steps - 1) / 2;
        return u64::try_from(product).ok();
    }
    let (steps, slots) = (u128::from(steps), u128::from(slots));
    // beta(slots, r) and beta(slots + 1, r - 1), from r = 1 on.
    let (mut r, mut beta, mut sum) = (1u128, slots + 1, 1u128);
    // With two slots and more r grows with the square root at most.
    while beta < steps {
        sum += beta;
        r += 1;
        beta = beta * (slots + r) / r;
    }
    u64::try_from(r * steps - sum).ok()
}

/// The least number of forward steps, the first runs among them, when a chain of
/// `steps` equal steps is reversed with `slots` slots, each of which holds a
/// restart state or what one step's backward needs.
///
/// `M(n, s) = n` if `n <= s + 1`, `M(n, 1) = n (n + 1) / 2 - 1`, else the least of
/// `1 + M(n - 1, s - 1)` and `i + M(i, s) + M(n - i, s - 1)` for `2 <= i < n`.
/// Time `O(steps^2 slots)`. None if there is no slot but a step.
#[must_use]
pub fn mixed_steps(steps: usize, slots: usize) -> Option<u64> {
    if slots == 0 {
        return (steps == 0).then_some(0);
    }
    // More slots than steps are no better than as many.
    let slots = slots.min(steps.max(1));
    let mut fewer: Vec<u64> = (0..=steps as u64).map(|n| if n <= 2 { n } else { n * (n + 1) / 2 - 1 }).collect();
    for s in 2..=slots {
        let mut now: Vec<u64> = Vec::with_capacity(steps + 1);
        for n in 0..=steps {
            now.push(if n <= s + 1 {
                n as u64
            } else {
                let split = (2..n).map(|i| i as u64 + now[i] + fewer[n - i]);
                split.fold(1 + fewer[n - 1], u64::min)
            });
        }
        fewer = now;
    }
    fewer.last().copied()
}

/// One stage of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// The time of the forward pass.
    pub forward: u64,
    /// The time of the backward pass.
    pub backward: u64,
    /// The bytes of the stage's output.
    pub output: u64,
    /// The bytes of all that the stage's backward needs, its output among them.
    pub saved: u64,
    /// The temporary bytes of the forward pass.
    pub forward_temporary: u64,
    /// The temporary bytes of the backward pass.
    pub backward_temporary: u64,
}

/// One action of a chain's schedule; stages count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Runs a stage and stores what its backward needs.
    ForwardAll(usize),
    /// Runs stages `from..to` and stores the last one's output alone.
    ForwardTo {
        /// The first stage.
        from: usize,
        /// The stage after the last.
        to: usize,
    },
    /// Runs a stage's backward and drops what was stored for it.
    Backward(usize),
}

/// A schedule of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainPlan {
    /// The time of all actions.
    pub cost: u64,
    /// The actions in order.
    pub actions: Vec<Action>,
}

#[derive(Clone, Copy)]
enum Choice {
    All,
    Split(usize),
}

struct Rotor<'a> {
    stages: &'a [Stage],
    known: HashMap<(usize, usize, u64), Option<(u64, Choice)>>,
}

/// The cheapest schedule of a chain within `budget` bytes, among those that keep
/// what they stored until its backward is done; none if there is none.
///
/// `input` is the size of the chain's input, which stays. With `C(s, t, m)` the
/// cost of stages `s..=t` within `m` bytes, `u`, `b` times, `a` outputs, `A` saved:
/// `C = min(u_s + b_s + C(s + 1, t, m - A_s), min_k sum u_s..u_{k-1} +
/// C(k, t, m - a_{k-1}) + C(s, k - 1, m))`.
/// This is the published recurrence: where a stage is saved while later ones are
/// still to come, it counts neither the temporaries of its backward nor a gradient
/// larger than the last one. Exact in bytes; time and memory grow with the cube of the length and with the
/// number of distinct sums of sizes.
#[must_use]
pub fn rotor(input: u64, stages: &[Stage], budget: u64) -> Option<ChainPlan> {
    let within = budget.checked_sub(input)?;
    if stages.is_empty() {
        return Some(ChainPlan { cost: 0, actions: Vec::new() });
    }
    let mut rotor = Rotor { stages, known: HashMap::new() };
    let last = stages.len() - 1;
    let (cost, _) = rotor.best(0, last, within)?;
    let mut actions = Vec::new();
    rotor.write(0, last, within, &mut actions);
    Some(ChainPlan { cost, actions })
}

impl Rotor<'_> {
    fn output(&self, stage: usize) -> u64 {
        self.stages[stage].output
    }

    /// What must fit to run stages `s..=t` forward without storing anything.
    fn passing(&self, s: usize, t: usize) -> u64 {
        let gradient = self.output(t);
        let first = gradient + self.output(s) + self.stages[s].forward_temporary;
        (s + 1..t).fold(first, |most, j| {
            most.max(gradient + self.output(j - 1) + self.output(j) + self.stages[j].forward_temporary)
        })
    }

    fn best(&mut self, s: usize, t: usize, within: u64) -> Option<(u64, Choice)> {
        if let Some(&known) = self.known.get(&(s, t, within)) {
            return known;
        }
        let stage = self.stages[s];
        let own = stage.forward + stage.backward;
        let mut best = None;
        if s == t {
            let temporary = stage.forward_temporary.max(stage.backward_temporary);
            if within >= stage.output + stage.saved + temporary {
                best = Some((own, Choice::All));
            }
        } else if within >= self.passing(s, t) {
            if let Some(left) = within.checked_sub(stage.saved)
                && let Some((rest, _)) = self.best(s + 1, t, left)
            {
                best = Some((own + rest, Choice::All));
            }
            let mut passed = 0;
            for k in s + 1..=t {
                passed += self.stages[k - 1].forward;
                let Some(left) = within.checked_sub(self.output(k - 1)) else { continue };
                let Some((right, _)) = self.best(k, t, left) else { continue };
                let Some((rest, _)) = self.best(s, k - 1, within) else { continue };
                let cost = passed + right + rest;
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, Choice::Split(k)));
                }
            }
        }
        self.known.insert((s, t, within), best);
        best
    }

    fn write(&mut self, s: usize, t: usize, within: u64, actions: &mut Vec<Action>) {
        match self.best(s, t, within) {
            None => {}
            Some((_, Choice::All)) => {
                actions.push(Action::ForwardAll(s));
                if s < t {
                    self.write(s + 1, t, within - self.stages[s].saved, actions);
                }
                actions.push(Action::Backward(s));
            }
            Some((_, Choice::Split(k))) => {
                actions.push(Action::ForwardTo { from: s, to: k });
                self.write(k, t, within - self.output(k - 1), actions);
                self.write(s, k - 1, within, actions);
            }
        }
    }
}
