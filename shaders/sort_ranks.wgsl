// The inverse of the permutations along the middle axis:
//
//     ranks[o, order[o, k, i], i] = k
//
// order, ranks [O, R, I], row-major; each line of order is a permutation of 0..R,
// so each element of ranks is written once.
// Grid: O * R * I invocations, 64 a workgroup, linear over x, y, z.

struct Ranks {
    // O * R * I.
    count: u32,
    // I.
    inner: u32,
    // R.
    extent: u32,
    pad: u32,
}

@group(0) @binding(0) var<uniform> u: Ranks;
@group(0) @binding(1) var<storage, read_write> order: array<i32>;
@group(0) @binding(2) var<storage, read_write> ranks: array<i32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let column = index % u.inner;
    let row = index / u.inner;
    let base = (row / u.extent) * u.extent * u.inner + column;
    ranks[base + u32(order[index]) * u.inner] = i32(row % u.extent);
}
