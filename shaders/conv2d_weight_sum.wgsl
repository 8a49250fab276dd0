// out[i] = sum over p of parts[p, i], in rising p: the parts of a weight's gradient.
// parts [P, count], out [count]. One invocation per element of out.
// Grid: ceil(count / 64) workgroups, spread over x, y, z.
struct Sum { count: u32, parts: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> u: Sum;
@group(0) @binding(1) var<storage, read_write> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    var sum = 0.0;
    for (var p = 0u; p < u.parts; p++) {
        sum += parts[p * u.count + index];
    }
    out[index] = sum;
}
