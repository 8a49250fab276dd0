// roll: out [outer, extent, inner], place p of the middle axis from place
// (p + shift) mod extent, or (shift - p) mod extent where backward is 1 (flip).
// b0: in, contiguous words; b1: out. One invocation per output element; grid
// ceil(count / 64) workgroups, spread over x, y, z.
struct Uniforms { count: u32, inner: u32, extent: u32, shift: u32, backward: u32, pad0: u32, pad1: u32, pad2: u32 }
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
    // shift < extent <= 2^31, so no sum wraps.
    var source = select(place + u.shift, u.shift + u.extent - place, u.backward == 1u);
    if (source >= u.extent) {
        source -= u.extent;
    }
    b1[index] = b0[(outer * u.extent + source) * u.inner + column];
}
