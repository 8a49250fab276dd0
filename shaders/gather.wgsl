// Elements of the middle axis by their places, line by line:
//
//     y[o, k, i] = x[o, places[o, k, i], i]     missing where the place is not in 0..R
//
// x [O, R, I] and y [O, K, I] as 32-bit words, places [O, K, I], all row-major.
// Grid: O * K * I invocations, 64 a workgroup, linear over x, y, z.

struct Gather {
    // O * K * I.
    count: u32,
    // I.
    inner: u32,
    // R.
    extent: u32,
    // K.
    taken: u32,
    // The bits of a place that is not there.
    missing: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> u: Gather;
@group(0) @binding(1) var<storage, read_write> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> places: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let column = index % u.inner;
    let outer = index / u.inner / u.taken;
    let place = places[index];
    var word = u.missing;
    if (place < u.extent) {
        word = x[(outer * u.extent + place) * u.inner + column];
    }
    y[index] = word;
}
