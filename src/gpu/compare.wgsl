// compare: found[i] = expected[i] for every word i, or how many are not, and
// the first of them.
//
// binding 1: found, any number n of words
// binding 2: expected, n words
// binding 3: count of words that differ, 0 before; index of the first, 0xFFFFFFFF before
// grid: one thread per word, spread over x, y, z; the surplus is guarded

struct Difference {
    count: atomic<u32>,
    first: atomic<u32>,
}

@group(0) @binding(1) var<storage, read_write> found: array<u32>;
@group(0) @binding(2) var<storage, read_write> expected: array<u32>;
@group(0) @binding(3) var<storage, read_write> difference: Difference;

@compute @workgroup_size(256)
fn compare(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = ((group.z * groups.y + group.y) * groups.x + group.x) * 256u + lane;
    if index < arrayLength(&found) {
        if found[index] != expected[index] {
            atomicAdd(&difference.count, 1u);
            atomicMin(&difference.first, index);
        }
    }
}
