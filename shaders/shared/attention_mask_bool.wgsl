// A mask of truth values: false hides a key.
@group(0) @binding(7) var<storage, read_write> mask_data: array<u32>;
fn masked(s: vec4<f32>, row: u32, keys: vec4<u32>) -> vec4<f32> {
    let at = vec4<u32>(u.mask_start + row) + keys * u.mask_strides.w;
    let seen = vec4<u32>(mask_data[at.x], mask_data[at.y], mask_data[at.z], mask_data[at.w]);
    return select(vec4<f32>(u.hidden), s, seen != vec4<u32>(0u));
}
