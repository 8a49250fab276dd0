// The gradient of scatter.wgsl for its source: source[n] = g[ids[n]] if winners[ids[n]] = n,
// else 0: only the place that was taken has one. ids that are no row v give 0.
// g, winners [V]; ids, source [N]. One invocation per place n.
// Grid: ceil(N / 64) workgroups, spread over x, y, z.
struct Scatter { count: u32, rows: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> u: Scatter;
@group(0) @binding(1) var<storage, read_write> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> winners: array<u32>;
@group(0) @binding(3) var<storage, read_write> ids: array<u32>;
@group(0) @binding(4) var<storage, read_write> source: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let row = ids[index];
    var value = 0.0;
    if (row < u.rows) {
        if (winners[row] == index) {
            value = g[row];
        }
    }
    source[index] = value;
}
