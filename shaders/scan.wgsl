// Running sums or products along the middle axis of x [O, R, I]:
//
//     y[o, r, i] = x[o, 0, i] + .. + x[o, r, i]      KIND 0
//     y[o, r, i] = x[o, 0, i] * .. * x[o, r, i]      KIND 1
//
// or from the end, where `reverse` is 1. x, y [O, R, I], row-major. One
// invocation walks one line, in order.
// Grid: O * I invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;

override KIND: u32 = 0u;

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
@group(0) @binding(1) var<storage, read_write> x: array<Element>;
@group(0) @binding(2) var<storage, read_write> y: array<Element>;

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
    var sum = x[at];
    y[at] = sum;
    for (var r = 1u; r < u.extent; r += 1u) {
        at += step;
        if (KIND == 0u) {
            sum += x[at];
        } else {
            sum *= x[at];
        }
        y[at] = sum;
    }
}
