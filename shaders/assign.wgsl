// state[i] = value[i], as words: a state takes a recorded value.
// state, value [count]. One invocation per element.
// Grid: ceil(count / 64) workgroups, spread over x, y, z.
struct Assign { count: u32, pad0: u32, pad1: u32, pad2: u32 }
@group(0) @binding(0) var<uniform> u: Assign;
@group(0) @binding(1) var<storage, read_write> state: array<u32>;
@group(0) @binding(2) var<storage, read_write> value: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index < u.count) {
        state[index] = value[index];
    }
}
