// dx[n, a, b] = sum of g[n, i, j] over the windows whose largest element is at (a, b),
// in rising i, j. g, places [N, HO, WO]; dx [N, H, W].
// One invocation per element of dx. Grid: ceil(count / 64) workgroups, over x, y, z.
@group(0) @binding(1) var<storage, read_write> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> places: array<u32>;
@group(0) @binding(3) var<storage, read_write> dx: array<f32>;

// The first window that reaches the place: its last element is there or behind it.
fn first_window(at: u32, kernel: u32, stride: u32) -> u32 {
    return select(0u, (at - kernel) / stride + 1u, at >= kernel);
}

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
    let last_row = min((row + u.padding_y) / u.stride_y + 1u, u.out_height);
    let last_column = min((column + u.padding_x) / u.stride_x + 1u, u.out_width);
    var sum = 0.0;
    for (var i = first_window(row + u.padding_y, u.kernel_y, u.stride_y); i < last_row; i++) {
        for (var j = first_window(column + u.padding_x, u.kernel_x, u.stride_x); j < last_column; j++) {
            let at = (image * u.out_height + i) * u.out_width + j;
            if (places[at] == place) {
                sum += g[at];
            }
        }
    }
    dx[index] = sum;
}
