// y[n, i, j] = the largest element of its window (shaders/shared/adaptive_pool2d.wgsl), and
// its place in the image, row * W + column: the first of equals, and the last NaN if
// there is one.
// x [N, H, W]; y [N, HO, WO]; places [N, HO, WO] as u32.
// One invocation per element of y. Grid: ceil(count / 64) workgroups, over x, y, z.
@group(0) @binding(0) var<uniform> u: Pool;
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
    let image = line / u.out_height;
    let rows = window(line - image * u.out_height, u.height, u.out_height);
    let columns = window(index - line * u.out_width, u.width, u.out_width);
    let start = image * u.height * u.width;
    var place = rows.x * u.width + columns.x;
    var best = x[start + place];
    for (var row = rows.x; row < rows.y; row++) {
        for (var column = columns.x; column < columns.y; column++) {
            let at = row * u.width + column;
            let value = x[start + at];
            if (value > best || is_nan(value)) {
                best = value;
                place = at;
            }
        }
    }
    y[index] = best;
    places[index] = place;
}
