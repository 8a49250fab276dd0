// The second stage of arg_reduce.wgsl: the best of the chunks' finds.
//
//     y[o, i] = the first parts[o, s, i] at which x[o, parts[o, s, i], i] is largest
//
// x  [O, R, I]; parts [O, S, I], indices into R; y [O, I].
// Grid: O * I invocations, 64 a workgroup, linear over x, y, z.
// shared/arg.wgsl stands before this text.

struct ArgCombine {
    // Elements of y.
    count: u32,
    // I.
    inner: u32,
    // R.
    reduced: u32,
    // S.
    chunks: u32,
}

@group(0) @binding(0) var<uniform> u: ArgCombine;
@group(0) @binding(1) var<storage, read_write> x: array<Element>;
@group(0) @binding(2) var<storage, read_write> parts: array<i32>;
@group(0) @binding(3) var<storage, read_write> y: array<i32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let column = place % u.inner;
    let outer = place / u.inner;
    let base = outer * u.reduced * u.inner + column;
    var found = parts[outer * u.chunks * u.inner + column];
    var best = x[base + u32(found) * u.inner];
    for (var chunk = 1u; chunk < u.chunks; chunk += 1u) {
        let other = parts[(outer * u.chunks + chunk) * u.inner + column];
        let candidate = x[base + u32(other) * u.inner];
        if (wins(candidate, best)) {
            best = candidate;
            found = other;
        }
    }
    y[place] = found;
}
