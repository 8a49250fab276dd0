// The gradient of adaptive_max_pool2d.wgsl: dx[n, a, b] = sum of g[n, i, j] over the windows
// whose saved place is a * W + b. The windows that reach row a are floor(a HO / H) to
// ceil((a + 1) HO / H), and so for columns (shaders/shared/adaptive_pool2d.wgsl).
// g, places [N, HO, WO]; dx [N, H, W].
// One invocation per element of dx. Grid: ceil(count / 64) workgroups, over x, y, z.
@group(0) @binding(0) var<uniform> u: Pool;
@group(0) @binding(1) var<storage, read_write> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> places: array<u32>;
@group(0) @binding(3) var<storage, read_write> dx: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let line = index / u.width;
    let column = index - line * u.width;
    let image = line / u.height;
    let row = line - image * u.height;
    let place = row * u.width + column;
    let rows = window(row, u.out_height, u.height);
    let columns = window(column, u.out_width, u.width);
    var sum = 0.0;
    for (var i = rows.x; i < rows.y; i++) {
        for (var j = columns.x; j < columns.y; j++) {
            let at = (image * u.out_height + i) * u.out_width + j;
            if (places[at] == place) {
                sum += g[at];
            }
        }
    }
    dx[index] = sum;
}
