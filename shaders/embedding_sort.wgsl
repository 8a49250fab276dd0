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

@compute @workgroup_size(1)
fn main() {
    let places = u.places;
    let rows = u.rows;
    for (var v = 0u; v < rows; v += 1u) {
        ends[v] = 0u;
    }
    for (var n = 0u; n < places; n += 1u) {
        let v = ids[n];
        if (v < rows) {
            ends[v] += 1u;
        }
    }
    var start = 0u;
    for (var v = 0u; v < rows; v += 1u) {
        let count = ends[v];
        ends[v] = start;
        start += count;
    }
    for (var n = 0u; n < places; n += 1u) {
        let v = ids[n];
        if (v < rows) {
            let at = ends[v];
            order[at] = n;
            ends[v] = at + 1u;
        } else {
            order[start] = n;
            start += 1u;
        }
    }
}
