// Scaled dot-product attention with an online softmax (Milakov and Gimelshein 2018;
// Dao et al. 2022): no [T, S] array is made.
//
//     s[t, j] = scale * q[t, :] . k[j, :] (+ mask[t, j]); keys not seen are left out
//     m[t] = max s[t, :]    p[t, j] = exp(s[t, j] - m[t])    l[t] = sum p[t, :]
//     o[t, :] = sum_j p[t, j] * v[j, :] / l[t]       zeros where no key is seen
//     lse[t] = (m[t], log l[t])                      (0, 0) where no key is seen
//
// q [B, H, T, D], k [B, HK, S, D], v [B, HK, S, E] through strides, contiguous
// along D and E, all in vec4; o [B, T, H, E]; lse [B, H, T, 2]; a mask
// [B, H, T, S] through strides.
//
// One invocation owns 4 * ROW_BLOCKS queries of a head and 4 * BLOCKS columns of
// its output, and walks the keys in order by eights; all invocations of a query
// make the same scores in the same order. No workgroup memory, no barrier.
// Grid: B * H * tiles * column_tiles invocations, linear over x, y, z.

@group(0) @binding(4) var<storage, read_write> o: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> lse: array<vec2<f32>>;

// Blocks of four queries that one invocation owns: 1 or 2.
override ROW_BLOCKS: u32 = 2u;
// Blocks of four columns that one invocation makes: 1 to 16.
override BLOCKS: u32 = 8u;
// The lowest finite number, exactly: a decimal a little lower is none for Tint.
const LOWEST: f32 = -0x1.fffffep+127;


// The largest score of each query of two blocks.
fn largest(a: mat4x4<f32>, b: mat4x4<f32>) -> vec4<f32> {
    let c0 = max(a[0], b[0]);
    let c1 = max(a[1], b[1]);
    let c2 = max(a[2], b[2]);
    let c3 = max(a[3], b[3]);
    return vec4<f32>(
        max(max(c0.x, c0.y), max(c0.z, c0.w)),
        max(max(c1.x, c1.y), max(c1.z, c1.w)),
        max(max(c2.x, c2.y), max(c2.z, c2.w)),
        max(max(c3.x, c3.y), max(c3.z, c3.w)),
    );
}

fn weights(s: mat4x4<f32>, m: vec4<f32>) -> mat4x4<f32> {
    return mat4x4<f32>(weighed(s[0], m.x), weighed(s[1], m.y), weighed(s[2], m.z), weighed(s[3], m.w));
}

fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

fn totals(a: mat4x4<f32>, b: mat4x4<f32>) -> vec4<f32> {
    return vec4<f32>(total(a[0] + b[0]), total(a[1] + b[1]), total(a[2] + b[2]), total(a[3] + b[3]));
}

// Each query's column times its factor.
fn times(a: mat4x4<f32>, factor: vec4<f32>) -> mat4x4<f32> {
    return mat4x4<f32>(a[0] * factor.x, a[1] * factor.y, a[2] * factor.z, a[3] * factor.w);
}

fn store(at: vec4<u32>, block: mat4x4<f32>) {
    o[at.x] = block[0];
    o[at.y] = block[1];
    o[at.z] = block[2];
    o[at.w] = block[3];
}

fn store_lse(at: vec4<u32>, m: vec4<f32>, sum: vec4<f32>) {
    let blind = sum == vec4<f32>(0.0);
    let top = select(m, vec4<f32>(0.0), blind);
    let logs = log(select(sum, vec4<f32>(1.0), blind));
    lse[at.x] = vec2<f32>(top.x, logs.x);
    lse[at.y] = vec2<f32>(top.y, logs.y);
    lse[at.z] = vec2<f32>(top.z, logs.z);
    lse[at.w] = vec2<f32>(top.w, logs.w);
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = index_of(workgroup, workgroups, lane);
    if (index >= u.count) {
        return;
    }
    let place = place_of(index);
    let batch = place.walk / u.heads;
    let head = place.walk % u.heads;
    let shared_head = head / u.group;
    let column = place.columns * BLOCKS;
    // Rows past the end repeat the last one, and are stored over it.
    let row = place.tile * 4u * ROW_BLOCKS;
    let last = vec4<u32>(u.queries - 1u);
    let rows0 = min(vec4<u32>(row) + CORNERS, last);
    let rows1 = min(vec4<u32>(row + 4u) + CORNERS, last);

    let q_at0 = vec4<u32>(u.q_strides.w + batch * u.q_strides.x + head * u.q_strides.y) + rows0 * u.q_strides.z;
    let q_at1 = vec4<u32>(u.q_strides.w + batch * u.q_strides.x + head * u.q_strides.y) + rows1 * u.q_strides.z;
    let k_base = u.k_strides.w + batch * u.k_strides.x + shared_head * u.k_strides.y;
    let v_base = u.v_strides.w + batch * u.v_strides.x + shared_head * u.v_strides.y;
    let mask_at = batch * u.mask_strides.x + head * u.mask_strides.y;

    var m0 = vec4<f32>(LOWEST);
    var m1 = vec4<f32>(LOWEST);
    var sum0 = vec4<f32>(0.0);
    var sum1 = vec4<f32>(0.0);
    var a0 = mat4x4<f32>();
    var a1 = mat4x4<f32>();
    var a2 = mat4x4<f32>();
    var a3 = mat4x4<f32>();
    var a4 = mat4x4<f32>();
    var a5 = mat4x4<f32>();
    var a6 = mat4x4<f32>();
    var a7 = mat4x4<f32>();
    var a8 = mat4x4<f32>();
    var a9 = mat4x4<f32>();
    var a10 = mat4x4<f32>();
    var a11 = mat4x4<f32>();
    var a12 = mat4x4<f32>();
    var a13 = mat4x4<f32>();
    var a14 = mat4x4<f32>();
    var a15 = mat4x4<f32>();
    var b0 = mat4x4<f32>();
    var b1 = mat4x4<f32>();
    var b2 = mat4x4<f32>();
    var b3 = mat4x4<f32>();
    var b4 = mat4x4<f32>();
    var b5 = mat4x4<f32>();
    var b6 = mat4x4<f32>();
    var b7 = mat4x4<f32>();
    var b8 = mat4x4<f32>();
    var b9 = mat4x4<f32>();
    var b10 = mat4x4<f32>();
    var b11 = mat4x4<f32>();
    var b12 = mat4x4<f32>();
    var b13 = mat4x4<f32>();
    var b14 = mat4x4<f32>();
    var b15 = mat4x4<f32>();

    // The last query of the tile sees most.
    let end = reach(min(row + 4u * ROW_BLOCKS, u.queries) - 1u);
    for (var key = 0u; key < end; key += 8u) {
        let places0 = vec4<u32>(key) + CORNERS;
        let keys0 = min(places0, vec4<u32>(u.keys - 1u));
        let places1 = places0 + vec4<u32>(4u);
        let keys1 = min(places1, vec4<u32>(u.keys - 1u));
        var s00 = mat4x4<f32>();
        var s01 = mat4x4<f32>();
        var s10 = mat4x4<f32>();
        var s11 = mat4x4<f32>();
        let k_at0 = vec4<u32>(k_base) + keys0 * u.k_strides.z;
        let k_at1 = vec4<u32>(k_base) + keys1 * u.k_strides.z;
        for (var d = 0u; d < u.width; d++) {
            let k0 = transpose(k_block(k_at0 + vec4<u32>(d)));
            let k1 = transpose(k_block(k_at1 + vec4<u32>(d)));
            let q0 = q_block(q_at0 + vec4<u32>(d));
            s00 += k0 * q0;
            s01 += k1 * q0;
            if (ROW_BLOCKS > 1u) {
                let q1 = q_block(q_at1 + vec4<u32>(d));
                s10 += k0 * q1;
                s11 += k1 * q1;
            }
        }
        s00[0] = scored(s00[0], rows0.x, places0, mask_at);
        s00[1] = scored(s00[1], rows0.y, places0, mask_at);
        s00[2] = scored(s00[2], rows0.z, places0, mask_at);
        s00[3] = scored(s00[3], rows0.w, places0, mask_at);
        s01[0] = scored(s01[0], rows0.x, places1, mask_at);
        s01[1] = scored(s01[1], rows0.y, places1, mask_at);
        s01[2] = scored(s01[2], rows0.z, places1, mask_at);
        s01[3] = scored(s01[3], rows0.w, places1, mask_at);
        let top0 = max(m0, largest(s00, s01));
        let shrink0 = exp(m0 - top0);
        m0 = top0;
        s00 = weights(s00, m0);
        s01 = weights(s01, m0);
        sum0 = sum0 * shrink0 + totals(s00, s01);
        var shrink1 = shrink0;
        if (ROW_BLOCKS > 1u) {
            s10[0] = scored(s10[0], rows1.x, places0, mask_at);
            s10[1] = scored(s10[1], rows1.y, places0, mask_at);
            s10[2] = scored(s10[2], rows1.z, places0, mask_at);
            s10[3] = scored(s10[3], rows1.w, places0, mask_at);
            s11[0] = scored(s11[0], rows1.x, places1, mask_at);
            s11[1] = scored(s11[1], rows1.y, places1, mask_at);
            s11[2] = scored(s11[2], rows1.z, places1, mask_at);
            s11[3] = scored(s11[3], rows1.w, places1, mask_at);
            let top1 = max(m1, largest(s10, s11));
            shrink1 = exp(m1 - top1);
            m1 = top1;
            s10 = weights(s10, m1);
            s11 = weights(s11, m1);
            sum1 = sum1 * shrink1 + totals(s10, s11);
        }
        let v_at0 = vec4<u32>(v_base) + keys0 * u.v_strides.z;
        let v_at1 = vec4<u32>(v_base) + keys1 * u.v_strides.z;
        // Columns past the edge repeat the last one and are never stored.
        let edge = u.value_width - 1u;
        let at0 = vec4<u32>(min(column + 0u, edge));
        let va0 = v_block(v_at0 + at0);
        let vb0 = v_block(v_at1 + at0);
        a0 = times(a0, shrink0) + va0 * s00 + vb0 * s01;
        if (ROW_BLOCKS > 1u) {
            b0 = times(b0, shrink1) + va0 * s10 + vb0 * s11;
        }
        if (BLOCKS > 1u) {
            let at1 = vec4<u32>(min(column + 1u, edge));
            let va1 = v_block(v_at0 + at1);
            let vb1 = v_block(v_at1 + at1);
            a1 = times(a1, shrink0) + va1 * s00 + vb1 * s01;
            if (ROW_BLOCKS > 1u) {
                b1 = times(b1, shrink1) + va1 * s10 + vb1 * s11;
            }
        }
        if (BLOCKS > 2u) {
            let at2 = vec4<u32>(min(column + 2u, edge));
            let va2 = v_block(v_at0 + at2);
            let vb2 = v_block(v_at1 + at2);
            a2 = times(a2, shrink0) + va2 * s00 + vb2 * s01;
            if (ROW_BLOCKS > 1u) {
                b2 = times(b2, shrink1) + va2 * s10 + vb2 * s11;
            }
        }
        if (BLOCKS > 3u) {
            let at3 = vec4<u32>(min(column + 3u, edge));
            let va3 = v_block(v_at0 + at3);
            let vb3 = v_block(v_at1 + at3);
            a3 = times(a3, shrink0) + va3 * s00 + vb3 * s01;
            if (ROW_BLOCKS > 1u) {
                b3 = times(b3, shrink1) + va3 * s10 + vb3 * s11;
            }
        }
        if (BLOCKS > 4u) {
            let at4 = vec4<u32>(min(column + 4u, edge));
            let va4 = v_block(v_at0 + at4);
            let vb4 = v_block(v_at1 + at4);
            a4 = times(a4, shrink0) + va4 * s00 + vb4 * s01;
            if (ROW_BLOCKS > 1u) {
                b4 = times(b4, shrink1) + va4 * s10 + vb4 * s11;
            }
        }
        if (BLOCKS > 5u) {
            let at5 = vec4<u32>(min(column + 5u, edge));
            let va5 = v_block(v_at0 + at5);
            let vb5 = v_block(v_at1 + at5);
            a5 = times(a5, shrink0) + va5 * s00 + vb5 * s01;
            if (ROW_BLOCKS > 1u) {
                b5 = times(b5, shrink1) + va5 * s10 + vb5 * s11;
            }
        }
        if (BLOCKS > 6u) {
            let at6 = vec4<u32>(min(column + 6u, edge));
            let va6 = v_block(v_at0 + at6);
            let vb6 = v_block(v_at1 + at6);
            a6 = times(a6, shrink0) + va6 * s00 + vb6 * s01;
            if (ROW_BLOCKS > 1u) {
                b6 = times(b6, shrink1) + va6 * s10 + vb6 * s11;
            }
        }
        if (BLOCKS > 7u) {
            let at7 = vec4<u32>(min(column + 7u, edge));
            let va7 = v_block(v_at0 + at7);
            let vb7 = v_block(v_at1 + at7);
            a7 = times(a7, shrink0) + va7 * s00 + vb7 * s01;
            if (ROW_BLOCKS > 1u) {
                b7 = times(b7, shrink1) + va7 * s10 + vb7 * s11;
            }
        }
        if (BLOCKS > 8u) {
            let at8 = vec4<u32>(min(column + 8u, edge));
            let va8 = v_block(v_at0 + at8);
            let vb8 = v_block(v_at1 + at8);
            a8 = times(a8, shrink0) + va8 * s00 + vb8 * s01;
            if (ROW_BLOCKS > 1u) {
                b8 = times(b8, shrink1) + va8 * s10 + vb8 * s11;
            }
        }
        if (BLOCKS > 9u) {
            let at9 = vec4<u32>(min(column + 9u, edge));
            let va9 = v_block(v_at0 + at9);
            let vb9 = v_block(v_at1 + at9);
            a9 = times(a9, shrink0) + va9 * s00 + vb9 * s01;
            if (ROW_BLOCKS > 1u) {
                b9 = times(b9, shrink1) + va9 * s10 + vb9 * s11;
            }
        }
        if (BLOCKS > 10u) {
            let at10 = vec4<u32>(min(column + 10u, edge));
            let va10 = v_block(v_at0 + at10);
            let vb10 = v_block(v_at1 + at10);
            a10 = times(a10, shrink0) + va10 * s00 + vb10 * s01;
            if (ROW_BLOCKS > 1u) {
                b10 = times(b10, shrink1) + va10 * s10 + vb10 * s11;
            }
        }
        if (BLOCKS > 11u) {
            let at11 = vec4<u32>(min(column + 11u, edge));
            let va11 = v_block(v_at0 + at11);
            let vb11 = v_block(v_at1 + at11);
            a11 = times(a11, shrink0) + va11 * s00 + vb11 * s01;
            if (ROW_BLOCKS > 1u) {
                b11 = times(b11, shrink1) + va11 * s10 + vb11 * s11;
            }
        }
        if (BLOCKS > 12u) {
            let at12 = vec4<u32>(min(column + 12u, edge));
            let va12 = v_block(v_at0 + at12);
            let vb12 = v_block(v_at1 + at12);
            a12 = times(a12, shrink0) + va12 * s00 + vb12 * s01;
            if (ROW_BLOCKS > 1u) {
                b12 = times(b12, shrink1) + va12 * s10 + vb12 * s11;
            }
        }
        if (BLOCKS > 13u) {
            let at13 = vec4<u32>(min(column + 13u, edge));
            let va13 = v_block(v_at0 + at13);
            let vb13 = v_block(v_at1 + at13);
            a13 = times(a13, shrink0) + va13 * s00 + vb13 * s01;
            if (ROW_BLOCKS > 1u) {
                b13 = times(b13, shrink1) + va13 * s10 + vb13 * s11;
            }
        }
        if (BLOCKS > 14u) {
            let at14 = vec4<u32>(min(column + 14u, edge));
            let va14 = v_block(v_at0 + at14);
            let vb14 = v_block(v_at1 + at14);
            a14 = times(a14, shrink0) + va14 * s00 + vb14 * s01;
            if (ROW_BLOCKS > 1u) {
                b14 = times(b14, shrink1) + va14 * s10 + vb14 * s11;
            }
        }
        if (BLOCKS > 15u) {
            let at15 = vec4<u32>(min(column + 15u, edge));
            let va15 = v_block(v_at0 + at15);
            let vb15 = v_block(v_at1 + at15);
            a15 = times(a15, shrink0) + va15 * s00 + vb15 * s01;
            if (ROW_BLOCKS > 1u) {
                b15 = times(b15, shrink1) + va15 * s10 + vb15 * s11;
            }
        }
    }

    let inverse0 = vec4<f32>(1.0) / select(sum0, vec4<f32>(1.0), sum0 == vec4<f32>(0.0));
    let inverse1 = vec4<f32>(1.0) / select(sum1, vec4<f32>(1.0), sum1 == vec4<f32>(0.0));
    let o_row = u.heads * u.value_width;
    let o_base = batch * u.queries * o_row + head * u.value_width + column;
    let o_at0 = vec4<u32>(o_base) + rows0 * o_row;
    let o_at1 = vec4<u32>(o_base) + rows1 * o_row;
    let columns = min(BLOCKS, u.value_width - column);
    if (columns > 0u) {
        store(o_at0 + vec4<u32>(0u), times(a0, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(0u), times(b0, inverse1));
        }
    }
    if (columns > 1u) {
        store(o_at0 + vec4<u32>(1u), times(a1, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(1u), times(b1, inverse1));
        }
    }
    if (columns > 2u) {
        store(o_at0 + vec4<u32>(2u), times(a2, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(2u), times(b2, inverse1));
        }
    }
    if (columns > 3u) {
        store(o_at0 + vec4<u32>(3u), times(a3, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(3u), times(b3, inverse1));
        }
    }
    if (columns > 4u) {
        store(o_at0 + vec4<u32>(4u), times(a4, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(4u), times(b4, inverse1));
        }
    }
    if (columns > 5u) {
        store(o_at0 + vec4<u32>(5u), times(a5, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(5u), times(b5, inverse1));
        }
    }
    if (columns > 6u) {
        store(o_at0 + vec4<u32>(6u), times(a6, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(6u), times(b6, inverse1));
        }
    }
    if (columns > 7u) {
        store(o_at0 + vec4<u32>(7u), times(a7, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(7u), times(b7, inverse1));
        }
    }
    if (columns > 8u) {
        store(o_at0 + vec4<u32>(8u), times(a8, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(8u), times(b8, inverse1));
        }
    }
    if (columns > 9u) {
        store(o_at0 + vec4<u32>(9u), times(a9, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(9u), times(b9, inverse1));
        }
    }
    if (columns > 10u) {
        store(o_at0 + vec4<u32>(10u), times(a10, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(10u), times(b10, inverse1));
        }
    }
    if (columns > 11u) {
        store(o_at0 + vec4<u32>(11u), times(a11, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(11u), times(b11, inverse1));
        }
    }
    if (columns > 12u) {
        store(o_at0 + vec4<u32>(12u), times(a12, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(12u), times(b12, inverse1));
        }
    }
    if (columns > 13u) {
        store(o_at0 + vec4<u32>(13u), times(a13, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(13u), times(b13, inverse1));
        }
    }
    if (columns > 14u) {
        store(o_at0 + vec4<u32>(14u), times(a14, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(14u), times(b14, inverse1));
        }
    }
    if (columns > 15u) {
        store(o_at0 + vec4<u32>(15u), times(a15, inverse0));
        if (ROW_BLOCKS > 1u) {
            store(o_at1 + vec4<u32>(15u), times(b15, inverse1));
        }
    }
    if (place.columns == 0u) {
        let first = place.walk * u.queries;
        store_lse(vec4<u32>(first) + rows0, m0, sum0);
        if (ROW_BLOCKS > 1u) {
            store_lse(vec4<u32>(first) + rows1, m1, sum1);
        }
    }
}
