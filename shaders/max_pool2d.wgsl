// y[n, i, j] = the largest x[n, i sy + k - py, j sx + l - px] of a window, and its place
// in the image, row * W + column: the first of equals, and the last NaN if there is one.
// x [N, H, W]; y [N, HO, WO]; places [N, HO, WO] as u32. No window is wholly outside.
// One invocation per element of y. Grid: ceil(count / 64) workgroups, over x, y, z.
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> places: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let line = index / u.out_width;
    let column = (index - line * u.out_width) * u.stride_x - u.padding_x;
    let image = line / u.out_height;
    let row = (line - image * u.out_height) * u.stride_y - u.padding_y;
    var best = bitcast<f32>(u.lowest);
    var place = 0xffffffffu;
    for (var k = 0u; k < u.kernel_y; k++) {
        for (var l = 0u; l < u.kernel_x; l++) {
            // What lies above or left of the image wraps to large numbers.
            let at = vec2<u32>(row + k, column + l);
            if (at.x < u.height && at.y < u.width) {
                let value = x[(image * u.height + at.x) * u.width + at.y];
                if (place == 0xffffffffu || value > best || is_nan(value)) {
                    best = value;
                    place = at.x * u.width + at.y;
                }
            }
        }
    }
    y[index] = best;
    places[index] = place;
}
