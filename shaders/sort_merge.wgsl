// Merges neighbouring sorted runs of `run` places along the middle axis:
//
//     order[o, :, i] = runs of 2 * run places of x[o, :, i], sorted
//
// `runs` [O, R, I] lists the places r of x [O, R, I] in sorted runs. Equal
// elements keep their order, since a run holds places before the next one's.
// One invocation takes one place and searches the other run for where it goes.
// Grid: O * R * I invocations, 64 a workgroup, linear over x, y, z.
// shared/sort.wgsl stands before this text.

@group(0) @binding(2) var<storage, read_write> runs: array<i32>;
@group(0) @binding(3) var<storage, read_write> order: array<i32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let column = index % u.inner;
    let row = index / u.inner;
    let at = row % u.extent;
    let base = (row / u.extent) * u.extent * u.inner + column;
    let start = (at / (2u * u.run)) * (2u * u.run);
    let middle = min(start + u.run, u.extent);
    let end = min(start + 2u * u.run, u.extent);
    let second = at >= middle;
    let place = runs[index];
    let own = x[base + u32(place) * u.inner];
    // The number of elements of the other run that stand before this one.
    var low = select(middle, start, second);
    let first = low;
    var high = select(end, middle, second);
    while (low < high) {
        let half = low + (high - low) / 2u;
        let other = x[base + u32(runs[base + half * u.inner]) * u.inner];
        if (before(other, own) || (second && !before(own, other))) {
            low = half + 1u;
        } else {
            high = half;
        }
    }
    let own_rank = select(at - start, at - middle, second);
    order[base + (start + own_rank + low - first) * u.inner] = place;
}
