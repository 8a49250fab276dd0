// What attention's kernels for forward and for gradients have in common: queries,
// keys and values in vec4, four rows at a time, and the invocation's number.

@group(0) @binding(1) var<storage, read_write> q_data: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> k_data: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v_data: array<vec4<f32>>;

// A multiple of 8: the lanes of a CPU adapter lie along x.
override WORKGROUP_SIZE: u32 = 16u;

fn q_block(at: vec4<u32>) -> mat4x4<f32> {
    return mat4x4<f32>(q_data[at.x], q_data[at.y], q_data[at.z], q_data[at.w]);
}
fn k_block(at: vec4<u32>) -> mat4x4<f32> {
    return mat4x4<f32>(k_data[at.x], k_data[at.y], k_data[at.z], k_data[at.w]);
}
fn v_block(at: vec4<u32>) -> mat4x4<f32> {
    return mat4x4<f32>(v_data[at.x], v_data[at.y], v_data[at.z], v_data[at.w]);
}

fn index_of(workgroup: vec3<u32>, workgroups: vec3<u32>, lane: u32) -> u32 {
    return (workgroup.x + workgroups.x * (workgroup.y + workgroups.y * workgroup.z)) * WORKGROUP_SIZE + lane;
}

