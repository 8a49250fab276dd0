// A linear recurrence along the middle axis:
//
//     y[o, r, i] = x[o, r, i] + a[o, r, i] * y[o, r - 1, i]
//
// with y = x at the first place; with y[o, r + 1, i], from the end, where
// `reverse` is 1. x, a, y [O, R, I], row-major. One invocation walks one line.
// Grid: O * I invocations, 64 a workgroup, linear over x, y, z.

struct Scan {
    // O * I.
    count: u32,
    // I.
    inner: u32,
    // R, not 0.
    extent: u32,
    reverse: u32,
}

@group(0) @binding(0) var<uniform> u: Scan;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> a: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    var at = (place / u.inner) * u.extent * u.inner + place % u.inner;
    var step = u.inner;
    if (u.reverse == 1u) {
        at += (u.extent - 1u) * u.inner;
        // Backwards: u32 wraps.
        step = 0u - u.inner;
    }
    var before = x[at];
    y[at] = before;
    for (var r = 1u; r < u.extent; r += 1u) {
        at += step;
        before = x[at] + a[at] * before;
        y[at] = before;
    }
}
