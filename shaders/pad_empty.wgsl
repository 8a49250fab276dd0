// pad of nothing: out is `value` everywhere.
// b0: out. One invocation per element; grid ceil(count / 64) workgroups, spread over x, y, z.
struct Uniforms { count: u32, inner: u32, extent: u32, parts: u32, start: u32, step: u32, value: u32, unused: u32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read_write> b0: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    b0[index] = u.value;
}
