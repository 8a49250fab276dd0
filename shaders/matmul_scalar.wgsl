// C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// The matmul for every shape, stride and alignment: scalar loads and stores, no
// workgroup memory, no barrier. One invocation computes ROWS rows by COLS
// columns of C, each 1, 4 or 8. With k = 0 it writes epilogue(0).
//
// The source is an epilogue text (see shared/epilogue_identity.wgsl),
// shared/matmul_uniforms.wgsl and this file.
//
// Bindings, group 0:
//   0  MatmulUniforms
//   1  A, [B0, B1, M, K], any strides
//   2  B, [B0, B1, K, N], any strides
//   3  C, [B0, B1, M, N], contiguous along N
//
// Grid: with R = ceil(m / ROWS), S = ceil(n / COLS),
//   W = ceil(batch0 * batch1 * R * S / WORKGROUP_SIZE) workgroups, dispatched as
//   y = ceil(W / 65535), x = ceil(W / y), z = 1.
//
// The sum over k runs upwards, one k at a time: neither the tile size nor the
// grid changes its order.

@group(0) @binding(1) var<storage, read_write> a: array<f32>;
@group(0) @binding(2) var<storage, read_write> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

// Rows and columns of C one invocation computes: 1, 4 or 8 each.
override ROWS: u32 = 4u;
override COLS: u32 = 4u;
// Row tiles that are walked before the next column tile.
override GROUP_TILES: u32 = 8u;
// A multiple of 8: the lanes of a CPU adapter lie along x.
override WORKGROUP_SIZE: u32 = 16u;

const CORNERS = vec4<u32>(0u, 1u, 2u, 3u);

fn a_load(at: vec4<u32>) -> vec4<f32> {
    var value = vec4<f32>(a[at.x]);
    if (ROWS > 1u) {
        value = vec4<f32>(value.x, a[at.y], a[at.z], a[at.w]);
    }
    return value;
}

fn b_load(at: vec4<u32>) -> vec4<f32> {
    var value = vec4<f32>(b[at.x]);
    if (COLS > 1u) {
        value = vec4<f32>(value.x, b[at.y], b[at.z], b[at.w]);
    }
    return value;
}

// acc + a b^T: column r of the matrix is row r of C, four n long.
fn accumulate(acc: mat4x4<f32>, a_value: vec4<f32>, b_value: vec4<f32>) -> mat4x4<f32> {
    if (ROWS > 1u) {
        return mat4x4<f32>(
            acc[0] + a_value.x * b_value,
            acc[1] + a_value.y * b_value,
            acc[2] + a_value.z * b_value,
            acc[3] + a_value.w * b_value,
        );
    }
    return mat4x4<f32>(acc[0] + a_value.x * b_value, acc[1], acc[2], acc[3]);
}

// One loop per axis, the values moving through the first place: one copy of the
// epilogue to compile instead of sixteen.
fn store_block(base: u32, block: mat4x4<f32>, batch: u32, row: u32, col: u32) {
    var rows = block;
    let row_end = min(row + min(ROWS, 4u), u.m);
    let col_end = min(col + min(COLS, 4u), u.n);
    for (var r = row; r < row_end; r++) {
        var values = rows[0];
        rows = mat4x4<f32>(rows[1], rows[2], rows[3], rows[3]);
        for (var s = col; s < col_end; s++) {
            c[base + r * u.c_row + s] = epilogue_scalar(values.x, batch, r, s);
            values = values.yzww;
        }
    }
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row_tiles = (u.m + ROWS - 1u) / ROWS;
    let col_tiles = (u.n + COLS - 1u) / COLS;
    let tiles = row_tiles * col_tiles;
    let index = (workgroup.x + workgroups.x * (workgroup.y + workgroups.y * workgroup.z))
        * WORKGROUP_SIZE + lane;
    if (index >= u.batch0 * u.batch1 * tiles) {
        return;
    }

    let batch = index / tiles;
    let tile = index % tiles;
    let group = tile / (GROUP_TILES * col_tiles);
    let first_row_tile = group * GROUP_TILES;
    let group_rows = min(GROUP_TILES, row_tiles - first_row_tile);
    let in_group = tile - first_row_tile * col_tiles;
    let row = (first_row_tile + in_group % group_rows) * ROWS;
    let col = (in_group / group_rows) * COLS;

    let outer = batch / u.batch1;
    let inner = batch % u.batch1;
    let a_base = u.a_offset + outer * u.a_batch0 + inner * u.a_batch1;
    let b_base = u.b_offset + outer * u.b_batch0 + inner * u.b_batch1;
    let c_base = u.c_offset + outer * u.c_batch0 + inner * u.c_batch1;

    // Rows and columns past the edge repeat the last one: they are computed and
    // never stored.
    let last_row = vec4<u32>(u.m - 1u);
    let last_col = vec4<u32>(u.n - 1u);
    let rows = vec4<u32>(row) + CORNERS;
    let cols = vec4<u32>(col) + CORNERS;
    var a_at0 = vec4<u32>(a_base) + min(rows, last_row) * u.a_row;
    var a_at1 = vec4<u32>(a_base) + min(rows + vec4<u32>(4u), last_row) * u.a_row;
    var b_at0 = vec4<u32>(b_base) + min(cols, last_col) * u.b_col;
    var b_at1 = vec4<u32>(b_base) + min(cols + vec4<u32>(4u), last_col) * u.b_col;
    let a_step = vec4<u32>(u.a_col);
    let b_step = vec4<u32>(u.b_row);

    var c00 = mat4x4<f32>();
    var c01 = mat4x4<f32>();
    var c10 = mat4x4<f32>();
    var c11 = mat4x4<f32>();
    let k = u.k;
    for (var i = 0u; i < k; i++) {
        let a0 = a_load(a_at0);
        let b0 = b_load(b_at0);
        a_at0 += a_step;
        b_at0 += b_step;
        c00 = accumulate(c00, a0, b0);
        var b1 = b0;
        if (COLS > 4u) {
            b1 = b_load(b_at1);
            b_at1 += b_step;
            c01 = accumulate(c01, a0, b1);
        }
        if (ROWS > 4u) {
            let a1 = a_load(a_at1);
            a_at1 += a_step;
            c10 = accumulate(c10, a1, b0);
            if (COLS > 4u) {
                c11 = accumulate(c11, a1, b1);
            }
        }
    }

    store_block(c_base, c00, batch, row, col);
    if (COLS > 4u) {
        store_block(c_base, c01, batch, row, col + 4u);
    }
    if (ROWS > 4u) {
        store_block(c_base, c10, batch, row + 4u, col);
        if (COLS > 4u) {
            store_block(c_base, c11, batch, row + 4u, col + 4u);
        }
    }
}
