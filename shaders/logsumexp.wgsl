// The logarithm of the sum of exponentials along the middle axis of x [O, R, I]:
//
//     y[o, i] = m + log(sum over r of exp(x[o, r, i] - m))    m = largest x[o, :, i]
//
// x [O, R, I], y [O, I], row-major. A line of -infinity only gives -infinity;
// one with infinity gives infinity, one with NaN gives NaN.
// One invocation walks one line, twice.
// Grid: O * I invocations, 64 a workgroup, linear over x, y, z.

struct Lines {
    // O * I.
    count: u32,
    // I.
    inner: u32,
    // R, not 0.
    extent: u32,
    // The bits of -infinity, which WGSL does not let one write.
    minus_infinity: u32,
}

@group(0) @binding(0) var<uniform> u: Lines;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let first = (place / u.inner) * u.extent * u.inner + place % u.inner;
    let end = first + u.extent * u.inner;
    var m = x[first];
    for (var at = first + u.inner; at < end; at += u.inner) {
        m = max(m, x[at]);
    }
    // Infinity less itself would be NaN.
    m = select(m, 0.0, (bitcast<u32>(m) & 0x7fffffffu) == 0x7f800000u);
    // Sums of sixteen, then of those: rounding errors stay small.
    var s = 0.0;
    var part = 0.0;
    var r = 0u;
    for (var at = first; at < end; at += u.inner) {
        part += exp(x[at] - m);
        r += 1u;
        if ((r & 15u) == 0u) {
            s += part;
            part = 0.0;
        }
    }
    s += part;
    y[place] = m + select(log(s), bitcast<f32>(u.minus_infinity), s == 0.0);
}
