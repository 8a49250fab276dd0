//! Offsets for values that live at different times.
//!
//! Finding the shortest arena is NP-hard. Several deterministic heuristics
//! are tried and the shortest result is taken; none is tried after one has
//! reached the largest sum of live bytes, which nothing can undercut.
//!
//! Addresses are virtual: block `k` covers `[k * stride, (k + 1) * stride)` and
//! no value crosses from one into the next. A block is as long as its last
//! placed byte.

use std::collections::{BTreeMap, BTreeSet};

/// Something to be placed: one value, or a chain of values made in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    /// First dispatch at which it is needed.
    pub(crate) first: u32,
    /// Last dispatch at which it is needed.
    pub(crate) last: u32,
    /// Bytes rounded up to the alignment: what it keeps others from using.
    pub(crate) size: u64,
    /// Bytes that are used of it.
    pub(crate) bytes: u64,
}

/// How large a block may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockLimit {
    /// Most bytes of a block.
    bytes: u64,
    /// Virtual distance of blocks: `bytes`, rounded up to the alignment.
    stride: u64,
}

/// No buffer is larger: addresses of 2^15 such blocks still fit into 64 bits.
pub(crate) const LARGEST_BUFFER: u64 = 1 << 48;

impl BlockLimit {
    /// Blocks of at most `max_buffer_bytes`, which are made of whole alignments.
    pub(crate) fn new(max_buffer_bytes: u64, align: u64) -> Self {
        let bytes = max_buffer_bytes.min(LARGEST_BUFFER);
        Self { bytes, stride: bytes.div_ceil(align) * align }
    }

    fn fits(&self, begin: u64, unit: &Unit) -> bool {
        let offset = begin % self.stride;
        offset + unit.size <= self.stride && offset + unit.bytes <= self.bytes
    }

    /// `begin`, or the start of the next block if the unit does not fit any more.
    fn within_block(&self, begin: u64, unit: &Unit) -> u64 {
        if self.fits(begin, unit) { begin } else { (begin / self.stride + 1) * self.stride }
    }
}

/// Where everything lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Virtual address of each unit.
    pub(crate) address: Vec<u64>,
    /// Length of each block.
    pub(crate) blocks: Vec<u64>,
    limit: BlockLimit,
}

impl Placement {
    /// The sum of the blocks' lengths.
    pub(crate) fn total(&self) -> u64 {
        self.blocks.iter().fold(0, |sum, &b| sum.saturating_add(b))
    }

    /// Block and offset of a unit.
    pub(crate) fn block_and_offset(&self, unit: usize) -> (u32, u64) {
        ((self.address[unit] / self.limit.stride) as u32, self.address[unit] % self.limit.stride)
    }
}

/// Above this many units only the sweeps, which take n log n, are tried.
const SCANS_UP_TO: usize = 8_192;
/// Pairs of units alive together above which the same holds: a list of them is kept.
const PAIRS_UP_TO: u64 = 4_000_000;
/// Repairs of an order, each of which is one more scan.
const REPAIRS_AT_LEAST: usize = 8;
const REPAIRS_AT_MOST: usize = 4_000;
/// Pairs of units alive together that are looked at by the repairs of all units, and
/// by those of the large ones.
const REPAIR_EFFORT: usize = 1_500_000;
const REPAIR_EFFORT_LARGE: usize = 3_000_000;
/// A unit of at least this part of the live bytes is large.
const LARGE: u64 = 96;

/// Places every unit; none is larger than a block. `live_bytes` is the largest
/// sum of sizes alive at one time.
pub(crate) fn place(units: &[Unit], limit: BlockLimit, live_bytes: u64) -> Placement {
    let mut best = sweep(units, limit);
    if units.len() > SCANS_UP_TO || pairs_together(units) > PAIRS_UP_TO {
        return best;
    }
    // Lengths end at the last used byte; the bound is in rounded sizes.
    let together = Together::new(units);
    let mut starts: Vec<(u64, Vec<u32>)> = Vec::new();
    for order in orders(units) {
        if best.total() <= live_bytes {
            return best;
        }
        let tried = scan(units, &order, limit, &together);
        starts.push((tried.total(), order));
        if tried.total() < best.total() {
            best = tried;
        }
    }
    starts.sort_by_key(|&(total, _)| total);
    let large = Large::new(units, live_bytes);
    for (_, order) in &mut starts {
        if best.total() <= live_bytes {
            return best;
        }
        *order = large.repaired(order, limit);
        let tried = scan(units, order, limit, &together);
        if tried.total() < best.total() {
            best = tried;
        }
    }
    let tries = (REPAIR_EFFORT / together.pairs().max(1)).clamp(REPAIRS_AT_LEAST, REPAIRS_AT_MOST);
    for (_, order) in starts {
        best = repair(units, order, (best, live_bytes), tries / 4, &together).0;
    }
    best
}

/// The large units alone: there are few, and what they leave open the small ones fill.
struct Large {
    units: Vec<Unit>,
    /// Which units they are.
    ids: Vec<u32>,
    /// The number among the large ones of each unit, if it is one.
    number: Vec<Option<u32>>,
    together: Together,
    live_bytes: u64,
}

impl Large {
    fn new(all: &[Unit], live_bytes: u64) -> Self {
        let ids: Vec<u32> = (0..all.len() as u32).filter(|&u| all[u as usize].size >= live_bytes / LARGE).collect();
        let mut number = vec![None; all.len()];
        ids.iter().zip(0..).for_each(|(&unit, at)| number[unit as usize] = Some(at));
        let units: Vec<Unit> = ids.iter().map(|&u| all[u as usize]).collect();
        let together = Together::new(&units);
        Self { live_bytes: most_alive(&units), units, ids, number, together }
    }

    /// The large units first, in an order found from where they stand in `order`; then the others.
    fn repaired(&self, order: &[u32], limit: BlockLimit) -> Vec<u32> {
        let own: Vec<u32> = order.iter().filter_map(|&u| self.number[u as usize]).collect();
        let tries = (REPAIR_EFFORT_LARGE / 4 / self.together.pairs().max(1)).min(REPAIRS_AT_MOST);
        let first = scan(&self.units, &own, limit, &self.together);
        let (_, own) = repair(&self.units, own, (first, self.live_bytes), tries, &self.together);
        let small = order.iter().copied().filter(|&u| self.number[u as usize].is_none());
        own.into_iter().map(|at| self.ids[at as usize]).chain(small).collect()
    }
}

/// The largest sum of sizes alive at one time.
fn most_alive(units: &[Unit]) -> u64 {
    let end = units.iter().map(|u| u.last as usize + 2).max().unwrap_or(0);
    let mut change = vec![0_i128; end];
    for unit in units {
        change[unit.first as usize] += i128::from(unit.size);
        change[unit.last as usize + 1] -= i128::from(unit.size);
    }
    let sums = change.iter().scan(0, |live: &mut i128, change| {
        *live += change;
        Some(*live)
    });
    u64::try_from(sums.max().unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Improves an order: a unit that ends above the largest sum of live bytes gets an
/// earlier choice. Orders in which more sticks out are not gone on from. The numbers
/// come from a generator with a fixed seed: the same units give the same placement.
/// Gives the best placement, and the order that was reached.
fn repair(
    units: &[Unit],
    mut order: Vec<u32>,
    (mut best, live_bytes): (Placement, u64),
    tries: usize,
    together: &Together,
) -> (Placement, Vec<u32>) {
    if order.len() < 2 {
        return (best, order);
    }
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 33) % n as u64) as usize
    };
    let mut current = scan(units, &order, best.limit, together);
    let mut place_of = vec![0_usize; units.len()];
    let mut best_order = order.clone();
    for _ in 0..tries {
        if best.total() <= live_bytes {
            break;
        }
        for (at, &unit) in order.iter().enumerate() {
            place_of[unit as usize] = at;
        }
        let out = sticking_out(units, &current, live_bytes);
        let Some(&unit) = out.get(below(out.len().max(1))) else { break };
        let at = place_of[unit as usize];
        // Before one that took its place, or any earlier one, or all.
        let to = match below(4) {
            0 => 0,
            1 => below(at + 1),
            _ => {
                let others = together.of(unit);
                let other = others.get(below(others.len().max(1))).map_or(at, |&other| place_of[other as usize]);
                other.min(at)
            }
        };
        if to == at {
            continue;
        }
        let mut changed = order.clone();
        changed[to..=at].rotate_right(1);
        let tried = scan(units, &changed, best.limit, together);
        let (more, less) = (tried.total().cmp(&current.total()), beyond(units, &tried, live_bytes));
        if more.is_lt() || less <= beyond(units, &current, live_bytes) {
            if tried.total() < best.total() {
                best = tried.clone();
                best_order.clone_from(&changed);
            }
            (order, current) = (changed, tried);
        }
    }
    (best, best_order)
}

/// Units that end above `live_bytes`, if there is one block; else those that end last in theirs.
fn sticking_out(units: &[Unit], placement: &Placement, live_bytes: u64) -> Vec<u32> {
    let ends = |u: usize| placement.address[u] + units[u].bytes;
    let mut out: Vec<u32> = (0..units.len()).filter(|&u| ends(u) > live_bytes).map(|u| u as u32).collect();
    if out.is_empty() {
        out.extend((0..units.len()).max_by_key(|&u| ends(u)).map(|u| u as u32));
    }
    out
}

/// Bytes above `live_bytes`, summed over the units that reach there.
fn beyond(units: &[Unit], placement: &Placement, live_bytes: u64) -> u128 {
    let ends = units.iter().zip(&placement.address).map(|(unit, address)| address + unit.bytes);
    ends.map(|end| u128::from(end.saturating_sub(live_bytes))).sum()
}

/// How many pairs of units are alive at one time.
fn pairs_together(units: &[Unit]) -> u64 {
    let mut firsts: Vec<u32> = units.iter().map(|u| u.first).collect();
    firsts.sort_unstable();
    let begun = |by: u32| firsts.partition_point(|&first| first <= by) as u64;
    // Each with those that begin in its life, itself and its equals left out.
    units.iter().map(|u| begun(u.last) - begun(u.first)).sum()
}

/// Which units are alive at one time.
struct Together {
    start: Vec<u32>,
    others: Vec<u32>,
}

impl Together {
    fn new(units: &[Unit]) -> Self {
        let mut by_first: Vec<u32> = (0..units.len() as u32).collect();
        by_first.sort_by_key(|&u| (units[u as usize].first, u));
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); units.len()];
        let mut alive: Vec<u32> = Vec::new();
        for &unit in &by_first {
            alive.retain(|&other| units[other as usize].last >= units[unit as usize].first);
            for &other in &alive {
                lists[other as usize].push(unit);
                lists[unit as usize].push(other);
            }
            alive.push(unit);
        }
        let mut start = vec![0];
        start.extend(lists.iter().scan(0, |sum, list| {
            *sum += list.len() as u32;
            Some(*sum)
        }));
        Self { start, others: lists.concat() }
    }

    fn of(&self, unit: u32) -> &[u32] {
        &self.others[self.start[unit as usize] as usize..self.start[unit as usize + 1] as usize]
    }

    fn pairs(&self) -> usize {
        self.others.len()
    }
}

/// Orders in which units are given their choice of the lowest free address.
fn orders(units: &[Unit]) -> Vec<Vec<u32>> {
    let sorted = |key: &dyn Fn(&Unit) -> (u64, u64)| {
        let mut order: Vec<u32> = (0..units.len() as u32).collect();
        order.sort_by_key(|&u| {
            let unit = &units[u as usize];
            (std::cmp::Reverse(key(unit)), unit.first, u)
        });
        order
    };
    let duration = |u: &Unit| u64::from(u.last - u.first) + 1;
    vec![
        sorted(&|u| (duration(u), u.size)),
        sorted(&|u| (u.size, duration(u))),
        by_breadth(units),
        sorted(&|u| (u.size.saturating_mul(duration(u)), u.size)),
    ]
}

/// Dispatches with the most live bytes choose first; within one, long lives
/// first, so that they lie at the bottom.
fn by_breadth(units: &[Unit]) -> Vec<u32> {
    let end = units.iter().map(|u| u.last as usize + 2).max().unwrap_or(0);
    let mut change = vec![(0_u128, 0_u128); end];
    for unit in units {
        change[unit.first as usize].0 += u128::from(unit.size);
        change[unit.last as usize + 1].1 += u128::from(unit.size);
    }
    let mut live = 0_u128;
    let breadth: Vec<u128> = change
        .iter()
        .map(|&(more, less)| {
            live = live + more - less;
            live
        })
        .collect();
    // The broadest dispatch of each unit decides when it chooses: a sparse
    // table would do, but a walk over maxima by doubling is as short.
    let widest = range_maxima(&breadth);
    let mut order: Vec<u32> = (0..units.len() as u32).collect();
    order.sort_by_key(|&u| {
        let unit = &units[u as usize];
        let broadest = widest.max(unit.first as usize, unit.last as usize);
        (std::cmp::Reverse((broadest, unit.last - unit.first, unit.size)), unit.first, u)
    });
    order
}

/// Maxima of ranges of a fixed list, by doubling lengths.
struct RangeMaxima {
    levels: Vec<Vec<u128>>,
}

fn range_maxima(values: &[u128]) -> RangeMaxima {
    let mut levels = vec![values.to_vec()];
    let mut length = 1;
    while length * 2 <= values.len() {
        let below = &levels[levels.len() - 1];
        let level = (0..=values.len() - length * 2).map(|at| below[at].max(below[at + length])).collect();
        levels.push(level);
        length *= 2;
    }
    RangeMaxima { levels }
}

impl RangeMaxima {
    /// The largest value from `first` to `last`, both included.
    fn max(&self, first: usize, last: usize) -> u128 {
        let level = (last - first + 1).ilog2() as usize;
        self.levels[level][first].max(self.levels[level][last + 1 - (1 << level)])
    }
}

/// Gives each unit, in this order, the lowest address that is free while it lives.
fn scan(units: &[Unit], order: &[u32], limit: BlockLimit, together: &Together) -> Placement {
    let mut address = vec![u64::MAX; units.len()];
    // Where those lie that are alive at one time with the unit: begin, end.
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for &index in order {
        let unit = &units[index as usize];
        taken.clear();
        let placed = together.of(index).iter().filter(|&&other| address[other as usize] != u64::MAX);
        taken.extend(placed.map(|&o| (address[o as usize], address[o as usize] + units[o as usize].size)));
        taken.sort_unstable();
        let mut begin = 0_u64;
        for &(other_begin, other_end) in &taken {
            if begin + unit.size <= other_begin {
                break;
            }
            if other_end > begin {
                begin = limit.within_block(other_end, unit);
            }
        }
        address[index as usize] = begin;
    }
    finish(units, address, limit)
}

/// Allocates and frees in the order of time, each in the smallest gap that fits.
fn sweep(units: &[Unit], limit: BlockLimit) -> Placement {
    let mut by_first: Vec<u32> = (0..units.len() as u32).collect();
    by_first.sort_by_key(|&u| (units[u as usize].first, std::cmp::Reverse(units[u as usize].size), u));
    let mut by_last: Vec<u32> = (0..units.len() as u32).collect();
    by_last.sort_by_key(|&u| (units[u as usize].last, u));
    let mut gaps = Gaps { by_address: BTreeMap::new(), by_size: BTreeSet::new(), blocks: 0, limit };
    let mut address = vec![0_u64; units.len()];
    let mut ended = by_last.iter().peekable();
    for &index in &by_first {
        let unit = &units[index as usize];
        while let Some(&done) = ended.next_if(|&&u| units[u as usize].last < unit.first) {
            gaps.free(address[done as usize], units[done as usize].size);
        }
        address[index as usize] = gaps.take(unit);
    }
    finish(units, address, limit)
}

struct Gaps {
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    blocks: u64,
    limit: BlockLimit,
}

impl Gaps {
    fn insert(&mut self, begin: u64, size: u64) {
        self.by_address.insert(begin, size);
        self.by_size.insert((size, begin));
    }

    fn remove(&mut self, begin: u64, size: u64) {
        self.by_address.remove(&begin);
        self.by_size.remove(&(size, begin));
    }

    fn take(&mut self, unit: &Unit) -> u64 {
        let size = unit.size;
        let found = self.by_size.range((size, 0)..).find(|&&(_, begin)| self.limit.fits(begin, unit)).copied();
        let (gap, begin) = found.unwrap_or_else(|| {
            let begin = self.blocks * self.limit.stride;
            self.blocks += 1;
            self.insert(begin, self.limit.stride);
            (self.limit.stride, begin)
        });
        self.remove(begin, gap);
        if gap > size {
            self.insert(begin + size, gap - size);
        }
        begin
    }

    fn free(&mut self, mut begin: u64, mut size: u64) {
        let before = self.by_address.range(..begin).next_back().map(|(&b, &s)| (b, s));
        if let Some((b, s)) = before {
            if b + s == begin && !begin.is_multiple_of(self.limit.stride) {
                self.remove(b, s);
                begin = b;
                size += s;
            }
        }
        let after = self.by_address.get(&(begin + size)).copied();
        if let Some(s) = after {
            if !(begin + size).is_multiple_of(self.limit.stride) {
                self.remove(begin + size, s);
                size += s;
            }
        }
        self.insert(begin, size);
    }
}

fn finish(units: &[Unit], address: Vec<u64>, limit: BlockLimit) -> Placement {
    let mut blocks: Vec<u64> = Vec::new();
    for (unit, &begin) in units.iter().zip(&address) {
        let block = (begin / limit.stride) as usize;
        if blocks.len() <= block {
            blocks.resize(block + 1, 0);
        }
        blocks[block] = blocks[block].max(begin % limit.stride + unit.bytes);
    }
    Placement { address, blocks, limit }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    fn unit(first: u32, last: u32, size: u64) -> Unit {
        Unit { first, last, size, bytes: size }
    }

    fn live(units: &[Unit]) -> u64 {
        (0..64).map(|t| units.iter().filter(|u| u.first <= t && t <= u.last).map(|u| u.size).sum()).max().unwrap()
    }

    fn overlaps(units: &[Unit], p: &Placement) -> bool {
        (0..units.len()).any(|a| {
            (0..a).any(|b| {
                let (ua, ub) = (&units[a], &units[b]);
                let together = ua.first <= ub.last && ub.first <= ua.last;
                together && p.address[a] < p.address[b] + ub.size && p.address[b] < p.address[a] + ua.size
            })
        })
    }

    #[test]
    fn a_gap_is_used_again() {
        let units = [unit(0, 1, 512), unit(0, 5, 256), unit(2, 5, 512), unit(6, 6, 768)];
        let p = place(&units, BlockLimit::new(1 << 20, 256), live(&units));
        assert_eq!(p.total(), 768);
        assert!(!overlaps(&units, &p));
    }

    #[test]
    fn nothing_crosses_a_block() {
        let units: Vec<Unit> = (0..20).map(|i| unit(i / 3, i / 2 + 3, 256 * (1 + u64::from(i * 7 % 4)))).collect();
        for capacity in [1024, 1280, 2048, 4096] {
            let limit = BlockLimit::new(capacity, 256);
            for p in [sweep(&units, limit), place(&units, limit, live(&units))] {
                assert!(!overlaps(&units, &p));
                assert!(p.blocks.iter().all(|&b| b <= capacity));
                for (u, unit) in units.iter().enumerate() {
                    let (_, offset) = p.block_and_offset(u);
                    assert!(offset + unit.size <= capacity);
                }
            }
        }
    }

    #[test]
    fn maxima_of_ranges() {
        let values: Vec<u128> = [3, 1, 4, 1, 5, 9, 2, 6].to_vec();
        let maxima = range_maxima(&values);
        for first in 0..values.len() {
            for last in first..values.len() {
                assert_eq!(maxima.max(first, last), *values[first..=last].iter().max().unwrap());
            }
        }
    }

    #[test]
    fn nothing_takes_nothing() {
        assert_eq!(place(&[], BlockLimit::new(1024, 256), 0).total(), 0);
    }
}
