// fill: every word of the range becomes a NaN (0xFFFFFFFF), so that a value
// that was never written shows in whatever is computed from it.
//
// binding 1: the range, any length in words
// grid: one thread per word, spread over x, y, z; the surplus is guarded

@group(0) @binding(1) var<storage, read_write> range: array<u32>;

@compute @workgroup_size(256)
fn fill(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = ((group.z * groups.y + group.y) * groups.x + group.x) * 256u + lane;
    if index < arrayLength(&range) {
        range[index] = 0xFFFFFFFFu;
    }
}
