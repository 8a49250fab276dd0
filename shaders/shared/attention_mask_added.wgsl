// A mask of numbers that are added to the scores.
@group(0) @binding(7) var<storage, read_write> mask_data: array<f32>;
fn masked(s: vec4<f32>, row: u32, keys: vec4<u32>) -> vec4<f32> {
    let at = vec4<u32>(u.mask_start + row) + keys * u.mask_strides.w;
    return s + vec4<f32>(mask_data[at.x], mask_data[at.y], mask_data[at.z], mask_data[at.w]);
}
