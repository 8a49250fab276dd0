// pad: out [outer, extent, inner] = in [outer, parts, inner] at places
// start + i step of the middle axis, `value` elsewhere.
// b0: in, contiguous words; b1: out. One invocation per output element; grid
// ceil(count / 64) workgroups, spread over x, y, z.
struct Uniforms { count: u32, inner: u32, extent: u32, parts: u32, start: u32, step: u32, value: u32, unused: u32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read_write> b0: array<u32>;
@group(0) @binding(2) var<storage, read_write> b1: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let row = index / u.inner;
    let column = index - row * u.inner;
    let outer = row / u.extent;
    let place = row - outer * u.extent;
    // Before start the difference wraps to a number far above parts * step.
    let behind = place - u.start;
    let part = behind / u.step;
    var word = u.value;
    if (place >= u.start && part < u.parts && part * u.step == behind) {
        word = b0[(outer * u.parts + part) * u.inner + column];
    }
    b1[index] = word;
}
