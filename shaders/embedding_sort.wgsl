// Sorts places by the number that stands there, keeping the order of equals: a
// counting sort.
//
//     ends[v]  = how many of ids are at most v
//     order[..]  = places n by rising ids[n], equals by rising n
//
// So the places of number v are order[ends[v - 1] .. ends[v]]. Numbers that are
// no row stand at the end of order.
// ids [N], 32-bit integers as they lie in memory; ends [V]; order [N].
// One invocation does it all, in O(N + V) steps: the order of equals, and with
// it the rounding of their sums, is the same everywhere.
// Many numbers take sixteen a round: Mesa's software adapter ends the loops of an
// invocation after 65,535 rounds in all, without a word. Few take one, whose text
// compiles seven times as fast.
// Grid: one workgroup.

struct Sort {
    // N.
    places: u32,
    // V.
    rows: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> u: Sort;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> ends: array<u32>;
@group(0) @binding(3) var<storage, read_write> order: array<u32>;

// Numbers in a round of a loop: 1 or 16.
override PER_ROUND: u32 = 16u;

// Where the next place of the row that is walked, or of no row, goes.
var<private> start: u32 = 0u;

fn clear(v: u32) {
    if (v < u.rows) {
        ends[v] = 0u;
    }
}

fn tally(n: u32) {
    if (n < u.places) {
        let v = ids[n];
        if (v < u.rows) {
            ends[v] += 1u;
        }
    }
}

fn begin(v: u32) {
    if (v < u.rows) {
        let count = ends[v];
        ends[v] = start;
        start += count;
    }
}

fn put(n: u32) {
    if (n < u.places) {
        let v = ids[n];
        if (v < u.rows) {
            let at = ends[v];
            order[at] = n;
            ends[v] = at + 1u;
        } else {
            order[start] = n;
            start += 1u;
        }
    }
}

@compute @workgroup_size(1)
fn main() {
    let places = u.places;
    let rows = u.rows;
    for (var v = 0u; v < rows; v += PER_ROUND) {
        clear(v);
        if (PER_ROUND > 1u) {
            clear(v + 1u);
            clear(v + 2u);
            clear(v + 3u);
            clear(v + 4u);
            clear(v + 5u);
            clear(v + 6u);
            clear(v + 7u);
            clear(v + 8u);
            clear(v + 9u);
            clear(v + 10u);
            clear(v + 11u);
            clear(v + 12u);
            clear(v + 13u);
            clear(v + 14u);
            clear(v + 15u);
        }
    }
    for (var n = 0u; n < places; n += PER_ROUND) {
        tally(n);
        if (PER_ROUND > 1u) {
            tally(n + 1u);
            tally(n + 2u);
            tally(n + 3u);
            tally(n + 4u);
            tally(n + 5u);
            tally(n + 6u);
            tally(n + 7u);
            tally(n + 8u);
            tally(n + 9u);
            tally(n + 10u);
            tally(n + 11u);
            tally(n + 12u);
            tally(n + 13u);
            tally(n + 14u);
            tally(n + 15u);
        }
    }
    for (var v = 0u; v < rows; v += PER_ROUND) {
        begin(v);
        if (PER_ROUND > 1u) {
            begin(v + 1u);
            begin(v + 2u);
            begin(v + 3u);
            begin(v + 4u);
            begin(v + 5u);
            begin(v + 6u);
            begin(v + 7u);
            begin(v + 8u);
            begin(v + 9u);
            begin(v + 10u);
            begin(v + 11u);
            begin(v + 12u);
            begin(v + 13u);
            begin(v + 14u);
            begin(v + 15u);
        }
    }
    for (var n = 0u; n < places; n += PER_ROUND) {
        put(n);
        if (PER_ROUND > 1u) {
            put(n + 1u);
            put(n + 2u);
            put(n + 3u);
            put(n + 4u);
            put(n + 5u);
            put(n + 6u);
            put(n + 7u);
            put(n + 8u);
            put(n + 9u);
            put(n + 10u);
            put(n + 11u);
            put(n + 12u);
            put(n + 13u);
            put(n + 14u);
            put(n + 15u);
        }
    }
}
