// winners[v] = the last place n with ids[n] = v, or 0xffffffff where there is none.
// Reads what embedding_sort.wgsl made of ids: ends [V], order [N]; winners [V] as u32.
// One invocation per number v. Grid: ceil(V / 64) workgroups, spread over x, y, z.
struct Rows { count: u32, pad0: u32, pad1: u32, pad2: u32 }
@group(0) @binding(0) var<uniform> u: Rows;
@group(0) @binding(1) var<storage, read_write> ends: array<u32>;
@group(0) @binding(2) var<storage, read_write> order: array<u32>;
@group(0) @binding(3) var<storage, read_write> winners: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    var begin = 0u;
    if (index > 0u) {
        begin = ends[index - 1u];
    }
    let end = ends[index];
    var winner = 0xffffffffu;
    if (end > begin) {
        winner = order[end - 1u];
    }
    winners[index] = winner;
}
