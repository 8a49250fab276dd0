// Sorts blocks of `run` neighbours along the middle axis of x [O, R, I]:
//
//     order[o, k, i] = the place r of the element that is k-th in its block
//
// Equal elements keep their order. x, order [O, R, I], row-major. One invocation
// counts the elements of its block that stand before its own.
// Grid: O * R * I invocations, 64 a workgroup, linear over x, y, z.
// shared/sort.wgsl stands before this text.

@group(0) @binding(2) var<storage, read_write> order: array<i32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let column = index % u.inner;
    let row = index / u.inner;
    let place = row % u.extent;
    let base = (row / u.extent) * u.extent * u.inner + column;
    let start = (place / u.run) * u.run;
    let end = min(start + u.run, u.extent);
    let own = x[index];
    var rank = start;
    for (var r = start; r < end; r += 1u) {
        let other = x[base + r * u.inner];
        if (before(other, own) || (r < place && !before(own, other))) {
            rank += 1u;
        }
    }
    order[base + rank * u.inner] = i32(place);
}
