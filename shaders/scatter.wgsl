// y[v] = source[winners[v]] where there is such a place, else x[v].
// x, y [V]; source [N]; winners [V] of scatter_last.wgsl. One invocation per element of y.
// Grid: ceil(V / 64) workgroups, spread over x, y, z.
struct Scatter { count: u32, places: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> u: Scatter;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> source: array<f32>;
@group(0) @binding(3) var<storage, read_write> winners: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let winner = winners[index];
    var value = x[index];
    if (winner < u.places) {
        value = source[winner];
    }
    y[index] = value;
}
