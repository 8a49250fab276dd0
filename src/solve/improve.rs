//! Local search: replays taken out and put back otherwise, on the true peak.

use super::greedy::Search;
use super::line::{Item, Line};

impl Line<'_> {
    /// Removes the runs at `positions`, which ascend.
    fn remove(&mut self, positions: &[usize]) {
        let mut gone = positions.iter().copied().peekable();
        let mut p = 0;
        self.items.retain(|_| {
            let remove = gone.next_if_eq(&p).is_some();
            p += 1;
            !remove
        });
        self.rebuild();
    }

    /// Removes runs whose outputs nobody reads before they are written again.
    fn remove_dead(&mut self) {
        loop {
            let n = self.items.len();
            let mut dead = Vec::new();
            let mut times = vec![0u32; self.graph.nodes().len()];
            self.items.iter().for_each(|i| times[i.node as usize] += 1);
            for p in (0..n).rev() {
                let node = self.items[p].node as usize;
                if times[node] < 2 {
                    continue;
                }
                let unread = self.graph.nodes()[node]
                    .outputs
                    .iter()
                    .all(|&v| self.life(v, p + 1).is_some_and(|l| l.birth as usize == p && l.death as usize == p));
                if unread {
                    times[node] -= 1;
                    dead.push(p);
                }
            }
            if dead.is_empty() {
                return;
            }
            dead.reverse();
            self.remove(&dead);
        }
    }

    /// Whether the budget still holds without the replay at `p`.
    fn spare(&self, p: usize) -> bool {
        let node = &self.graph.nodes()[self.items[p].node as usize];
        let mut from = usize::MAX;
        for &v in &node.outputs {
            match self.life(v, p) {
                Some(life) => from = from.min(life.death as usize + 1),
                None => return false,
            }
        }
        // All outputs together: exact for one, careful for several.
        let bytes: u64 = node
            .outputs
            .iter()
            .filter(|&&v| self.life(v, p + 1).is_some_and(|l| l.death as usize > p))
            .map(|&v| self.graph.bytes(v))
            .sum();
        let room = self.budget.saturating_sub(bytes);
        self.resident[from.min(p)..p].iter().all(|&r| r <= room)
    }

    /// Removes every replay that the budget allows to be without, dearest first.
    pub(super) fn prune(&mut self, search: &mut Search) {
        self.remove_dead();
        let mut replays: Vec<Item> = Vec::new();
        for p in 0..self.items.len() {
            if !self.is_first(p) {
                replays.push(self.items[p]);
            }
        }
        let cost = |i: &Item| self.graph.nodes()[i.node as usize].cost;
        replays.sort_by(|a, b| cost(b).cmp(&cost(a)).then(a.id.cmp(&b.id)));
        let mut pruned = false;
        for item in replays {
            search.steps += 1;
            let Some(p) = self.position(item.id) else { continue };
            if self.spare(p) {
                self.remove(&[p]);
                pruned = true;
            }
        }
        if pruned {
            self.remove_dead();
        }
    }

    /// Moves runs towards their readers or their inputs where that frees bytes.
    pub(super) fn tighten(&mut self, search: &mut Search) {
        for _ in 0..4 {
            let before: u128 = self.resident.iter().map(|&r| u128::from(r)).sum();
            let ids: Vec<u32> = self.items.iter().rev().map(|i| i.id).collect();
            for &id in &ids {
                self.shift(search, id, true);
            }
            for &id in ids.iter().rev() {
                self.shift(search, id, false);
            }
            let after: u128 = self.resident.iter().map(|&r| u128::from(r)).sum();
            if after >= before {
                break;
            }
        }
    }

    /// Moves one run as late, or as early, as it can go if bytes are freed by that.
    fn shift(&mut self, search: &mut Search, id: u32, later: bool) -> bool {
        search.steps += 1;
        let Some(p) = self.position(id) else { return false };
        let node = &self.graph.nodes()[self.items[p].node as usize];
        let written: u64 = node.outputs.iter().map(|&v| self.graph.bytes(v)).sum();
        let mut read = 0;
        let mut earliest = 0;
        for &v in &node.inputs {
            if let Some(life) = self.life(v, p) {
                earliest = earliest.max(life.birth as usize + 1);
                if life.death as usize == p {
                    read += self.graph.bytes(v);
                }
            }
        }
        let to = if later {
            if written <= read {
                return false;
            }
            let first = (p + 1..self.items.len()).find(|&q| {
                let other = &self.graph.nodes()[self.items[q].node as usize];
                self.items[q].node == self.items[p].node || other.inputs.iter().any(|v| node.outputs.contains(v))
            });
            first.unwrap_or(self.items.len()) - 1
        } else {
            if read <= written {
                return false;
            }
            let own = (earliest..p).rev().find(|&q| self.items[q].node == self.items[p].node);
            own.map_or(earliest, |q| q + 1)
        };
        if to == p {
            return false;
        }
        let (excess, peak) = (self.excess, self.peak);
        let move_run = |items: &mut Vec<Item>, from: usize, to: usize| {
            if from < to {
                items[from..=to].rotate_left(1);
            } else {
                items[to..=from].rotate_right(1);
            }
        };
        move_run(&mut self.items, p, to);
        self.rebuild();
        if self.excess > excess || (self.excess == 0 && self.peak > self.budget.max(peak)) {
            move_run(&mut self.items, to, p);
            self.rebuild();
            return false;
        }
        true
    }
}

/// Improves a line within its budget for so many more steps.
pub(super) fn improve(search: &mut Search, line: &mut Line<'_>, steps: u64) {
    line.prune(search);
    let base = line.graph.base_cost();
    let end = search.steps.saturating_add(steps);
    search.end = u64::MAX;
    let mut best = (line.cost, line.items.clone());
    let mut current = best.clone();
    let mut idle = 0u64;
    while search.steps < end && best.0 > base && !search.deadline.is_over() {
        search.steps += line.items.len() as u64 / 8;
        let replays: Vec<usize> = (0..line.items.len()).filter(|&p| !line.is_first(p)).collect();
        if replays.is_empty() {
            break;
        }
        let mut out = Vec::new();
        let centre = search.below(replays.len());
        match search.below(3) {
            // Neighbours in the line.
            0 => {
                let count = 1 + search.below(6);
                out.extend(&replays[centre..(centre + count).min(replays.len())]);
            }
            // Any.
            1 => {
                for _ in 0..1 + search.below(4) {
                    out.push(replays[search.below(replays.len())]);
                }
            }
            // What relieves one place.
            _ => {
                let count = 2 + search.below(8);
                let place = search.below(replays[centre].max(1));
                for &p in replays.iter() {
                    let node = &line.graph.nodes()[line.items[p].node as usize];
                    let covers =
                        node.outputs.iter().any(|&v| line.life(v, p).is_some_and(|l| (l.death as usize) < place));
                    if p > place && covers && search.below(replays.len()) < count * 2 {
                        out.push(p);
                    }
                }
            }
        }
        if search.below(4) == 0 {
            let ids: Vec<u32> = (0..3).map(|_| line.items[search.below(line.items.len())].id).collect();
            // Positions shift: name them first.
            let names: Vec<u32> = out.iter().map(|&p| line.items[p].id).collect();
            for id in ids {
                let later = search.below(2) == 0;
                line.shift(search, id, later);
            }
            out = names.iter().filter_map(|&id| line.position(id)).collect();
        }
        out.sort_unstable();
        out.dedup();
        line.remove(&out);
        search.noise = [0.0, 0.3, 1.0, 3.0][search.below(4)];
        let extra = (current.0 - base) as f64;
        let slack = if search.below(10) == 0 { 0.01 } else { 0.0 };
        let limit = current.0 + (extra * slack) as u64 + 1;
        let fits = search.fit(line, limit);
        if fits {
            line.prune(search);
        }
        if fits && line.cost < limit {
            current = (line.cost, line.items.clone());
            line.restore(&current.1);
            if line.cost < best.0 {
                best = current.clone();
                idle = 0;
            }
        } else {
            line.restore(&current.1);
        }
        idle += 1;
        if idle > 400 {
            current = best.clone();
            line.restore(&current.1);
            idle = 0;
        }
    }
    search.noise = 0.0;
    line.restore(&best.1);
}
