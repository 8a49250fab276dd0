//! The matmul ladder: every matmul kernel, checked against an f64 reference and timed.
//!
//! `cargo bench --bench matmul_ladder` checks all kernels, then times them.
//! Words after `--` narrow it: `check` and `time` select one half, `case=TEXT` and
//! `kernel=TEXT` keep what contains one of the texts given.
//!
//! Shapes are written `[M, K] x [K, N]`; N or T says how a matrix lies in memory:
//! A is `[M, K]` (N) or `[K, M]` (T), B is `[K, N]` (N) or `[N, K]` (T).
//!
//! Columns: `compile` CPU milliseconds the first dispatch took beyond the second
//! (Mesa caches compiled shaders on disk: set `MESA_SHADER_CACHE_DISABLE=1` to
//! see a cold start); `ms` and `GFLOP/s` the median run; `best` the fastest;
//! `GF/cpu-s` gigaflops per CPU second, comparable while other programs run.

#[path = "common/cpu.rs"]
mod cpu;
#[path = "matmul_ladder/device.rs"]
mod device;

use bytemuck::{Pod, Zeroable};
use cpu::cpu_seconds;
use device::Gpu;

const EPILOGUE: &str = include_str!("../shaders/shared/epilogue_identity.wgsl");
const REGISTER: &str =
    concat!(include_str!("../shaders/shared/matmul_uniforms.wgsl"), include_str!("../shaders/matmul_register.wgsl"));
const TILED: &str =
    concat!(include_str!("../shaders/shared/matmul_uniforms.wgsl"), include_str!("../shaders/matmul_tiled.wgsl"));
const SCALAR: &str =
    concat!(include_str!("../shaders/shared/matmul_uniforms.wgsl"), include_str!("../shaders/matmul_scalar.wgsl"));

/// What memory around C holds, to see writes that do not belong there.
const SENTINEL: f32 = 12345.678;
/// Elements of C's binding before and after the matrix itself.
const MARGIN: usize = 256;
const MAX_GROUPS: u32 = 65_535;
const RUNS: usize = 7;

/// Mirrors `MatmulUniforms` in the shaders. Strides and offsets count f32 elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
struct Uniforms {
    batch0: u32,
    batch1: u32,
    m: u32,
    n: u32,
    k: u32,
    a_batch0: u32,
    a_batch1: u32,
    a_row: u32,
    a_col: u32,
    b_batch0: u32,
    b_batch1: u32,
    b_row: u32,
    b_col: u32,
    c_batch0: u32,
    c_batch1: u32,
    c_row: u32,
    a_offset: u32,
    b_offset: u32,
    c_offset: u32,
    padding: u32,
    /// Words of a fused epilogue; the identity has none, but a struct is not empty.
    epilogue: [u32; 4],
}

/// One multiplication: its sizes, layout and the elements each buffer needs.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    u: Uniforms,
    a_transposed: bool,
    b_transposed: bool,
    a_len: usize,
    b_len: usize,
    c_len: usize,
}

impl Case {
    /// A dense multiplication, one matrix after another; `batch` is B0 times B1.
    fn dense(batch: [u32; 2], mnk: [u32; 3], layout: &str) -> Self {
        let [m, n, k] = mnk;
        let a_transposed = layout.starts_with('T');
        let b_transposed = layout.ends_with('T');
        let (a_row, a_col) = if a_transposed { (1, m) } else { (k, 1) };
        let (b_row, b_col) = if b_transposed { (1, k) } else { (n, 1) };
        let u = Uniforms {
            batch0: batch[0],
            batch1: batch[1],
            m,
            n,
            k,
            a_batch0: batch[1] * m * k,
            a_batch1: m * k,
            a_row,
            a_col,
            b_batch0: batch[1] * k * n,
            b_batch1: k * n,
            b_row,
            b_col,
            c_batch0: batch[1] * m * n,
            c_batch1: m * n,
            c_row: n,
            ..Uniforms::default()
        };
        let count = if batch == [1, 1] { String::new() } else { format!("{}x{} ", batch[0], batch[1]) };
        Self::new(format!("{count}[{m}, {k}] x [{k}, {n}] {layout}"), u, a_transposed, b_transposed)
    }

    fn new(name: String, u: Uniforms, a_transposed: bool, b_transposed: bool) -> Self {
        let last = |n: u32, stride: u32| (n.max(1) - 1) as usize * stride as usize;
        let batches = |s0, s1| last(u.batch0, s0) + last(u.batch1, s1);
        let a_len = 1 + batches(u.a_batch0, u.a_batch1) + last(u.m, u.a_row) + last(u.k, u.a_col);
        let b_len = 1 + batches(u.b_batch0, u.b_batch1) + last(u.k, u.b_row) + last(u.n, u.b_col);
        let c_len = 1 + batches(u.c_batch0, u.c_batch1) + last(u.m, u.c_row) + last(u.n, 1);
        Self { name, u, a_transposed, b_transposed, a_len, b_len, c_len }
    }

    /// The same multiplication with A, B and C beginning somewhere inside their bindings.
    fn with_offsets(mut self, a: u32, b: u32, c: u32) -> Self {
        self.u.a_offset = a;
        self.u.b_offset = b;
        self.u.c_offset = c;
        self.name += &format!(" offsets {a},{b},{c}");
        self
    }

    fn flops(&self) -> f64 {
        let u = &self.u;
        2.0 * f64::from(u.batch0) * f64::from(u.batch1) * f64::from(u.m) * f64::from(u.n) * f64::from(u.k)
    }

    /// Whether the vec4 kernel may run this: its documented conditions.
    fn vec4(&self) -> bool {
        let u = &self.u;
        let (a_contiguous, a_other) = if self.a_transposed { (u.a_row, u.a_col) } else { (u.a_col, u.a_row) };
        let (b_contiguous, b_other) = if self.b_transposed { (u.b_row, u.b_col) } else { (u.b_col, u.b_row) };
        let batch_ok = |size: u32, stride: u32| size == 1 || stride.is_multiple_of(4);
        a_contiguous == 1
            && b_contiguous == 1
            && u.k.is_multiple_of(4)
            && u.n.is_multiple_of(4)
            && (!self.a_transposed || u.m.is_multiple_of(4))
            && [a_other, b_other, u.c_row, u.a_offset, u.b_offset, u.c_offset].iter().all(|s| s.is_multiple_of(4))
            && [u.a_batch0, u.b_batch0, u.c_batch0].iter().all(|&s| batch_ok(u.batch0, s))
            && [u.a_batch1, u.b_batch1, u.c_batch1].iter().all(|&s| batch_ok(u.batch1, s))
    }
}

/// A kernel file with the constants it is specialised by.
#[derive(Clone, Debug)]
struct Kernel {
    name: String,
    text: &'static str,
    constants: Vec<(&'static str, f64)>,
    tile: [u32; 2],
    /// Tiles of C one workgroup computes.
    tiles_per_group: u32,
    /// Whether it takes only what [`Case::vec4`] allows.
    vec4: bool,
    /// Whether its pipeline depends on how A and B lie in memory.
    by_layout: bool,
}

impl Kernel {
    fn register(row_blocks: u32, col_blocks: u32, group_tiles: u32, workgroup: u32) -> Self {
        Self {
            name: format!("register {}x{} g{group_tiles} w{workgroup}", 4 * row_blocks, 4 * col_blocks),
            text: REGISTER,
            constants: vec![
                ("ROW_BLOCKS", f64::from(row_blocks)),
                ("COL_BLOCKS", f64::from(col_blocks)),
                ("GROUP_TILES", f64::from(group_tiles)),
                ("WORKGROUP_SIZE", f64::from(workgroup)),
            ],
            tile: [4 * row_blocks, 4 * col_blocks],
            tiles_per_group: workgroup,
            vec4: true,
            by_layout: true,
        }
    }

    fn scalar(rows: u32, cols: u32, workgroup: u32) -> Self {
        Self {
            name: format!("scalar {rows}x{cols} w{workgroup}"),
            text: SCALAR,
            constants: vec![
                ("ROWS", f64::from(rows)),
                ("COLS", f64::from(cols)),
                ("WORKGROUP_SIZE", f64::from(workgroup)),
            ],
            tile: [rows, cols],
            tiles_per_group: workgroup,
            vec4: false,
            by_layout: false,
        }
    }

    fn tiled(blocks: u32) -> Self {
        Self {
            name: format!("tiled {0}x{0}", 64 * blocks),
            text: TILED,
            constants: vec![("BLOCKS", f64::from(blocks))],
            tile: [64 * blocks; 2],
            tiles_per_group: 1,
            vec4: false,
            by_layout: true,
        }
    }

    fn takes(&self, case: &Case) -> bool {
        !self.vec4 || case.vec4()
    }

    /// Workgroups along x, y and z; the kernels guard what the rounding adds.
    fn grid(&self, u: &Uniforms) -> [u32; 3] {
        let tiles = u.m.div_ceil(self.tile[0]) * u.n.div_ceil(self.tile[1]);
        let groups = (u.batch0 * u.batch1 * tiles).div_ceil(self.tiles_per_group);
        let y = groups.div_ceil(MAX_GROUPS).max(1);
        [groups.div_ceil(y), y, 1]
    }
}

/// Uniform numbers in -1..1 from a 64-bit linear congruential generator.
fn random(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// Visits each element of C: its index in the binding, and where its row of A and
/// column of B start.
fn for_each_output(u: &Uniforms, mut visit: impl FnMut(usize, usize, usize)) {
    let at = |i: u32, stride: u32| i as usize * stride as usize;
    for b0 in 0..u.batch0 {
        for b1 in 0..u.batch1 {
            for row in 0..u.m {
                let a = u.a_offset as usize + at(b0, u.a_batch0) + at(b1, u.a_batch1) + at(row, u.a_row);
                let c = u.c_offset as usize + at(b0, u.c_batch0) + at(b1, u.c_batch1) + at(row, u.c_row);
                for col in 0..u.n {
                    let b = u.b_offset as usize + at(b0, u.b_batch0) + at(b1, u.b_batch1) + at(col, u.b_col);
                    visit(c + col as usize, a, b);
                }
            }
        }
    }
}

/// Compares C with an f64 reference and everything around it with the sentinel.
fn verify(u: &Uniforms, a: &[f32], b: &[f32], c: &[f32]) -> Result<f64, String> {
    let mut outside = vec![true; c.len()];
    let mut worst = 0.0_f64;
    let mut error = None;
    for_each_output(u, |at, a_at, b_at| {
        outside[at] = false;
        let (mut sum, mut size) = (0.0_f64, 0.0_f64);
        for k in 0..u.k as usize {
            let product = f64::from(a[a_at + k * u.a_col as usize]) * f64::from(b[b_at + k * u.b_row as usize]);
            sum += product;
            size += product.abs();
        }
        // The bound of recursive summation is k * eps * size; random signs stay far below it.
        let allowed = 1e-6 * size + 1e-7;
        let difference = (f64::from(c[at]) - sum).abs();
        worst = worst.max(difference / allowed);
        if difference.is_nan() || difference > allowed {
            error.get_or_insert_with(|| format!("C at {at}: {} where {sum} is due", c[at]));
        }
    });
    if let Some(at) = (0..c.len()).find(|&at| outside[at] && c[at].to_bits() != SENTINEL.to_bits()) {
        error.get_or_insert_with(|| format!("wrote {} outside of C, at {at}", c[at]));
    }
    error.map_or(Ok(worst), Err)
}

fn check(gpu: &Gpu, kernels: &[Kernel], cases: &[Case]) -> usize {
    let mut failures = 0;
    for kernel in kernels {
        let mut pipelines: [Option<wgpu::ComputePipeline>; 4] = [const { None }; 4];
        let (mut count, mut worst) = (0, 0.0_f64);
        for case in cases.iter().filter(|case| kernel.takes(case)) {
            let slot =
                if kernel.by_layout { usize::from(case.a_transposed) * 2 + usize::from(case.b_transposed) } else { 0 };
            let pipeline = pipelines[slot].get_or_insert_with(|| gpu.pipeline(kernel, case));
            let mut u = case.u;
            u.c_offset += MARGIN as u32;
            let a = random(1, case.a_len + u.a_offset as usize);
            let b = random(2, case.b_len + u.b_offset as usize);
            let c = vec![SENTINEL; case.c_len + u.c_offset as usize + MARGIN];
            let bound = gpu.bind(&u, &a, &b, &c);
            gpu.run(pipeline, &bound, kernel.grid(&u), 1);
            match verify(&u, &a, &b, &gpu.read_c(&bound)) {
                Ok(error) => worst = worst.max(error),
                Err(message) => {
                    failures += 1;
                    println!("FAILED {} / {}: {message}", kernel.name, case.name);
                }
            }
            count += 1;
        }
        println!("checked {:<24} {count:>4} cases, worst error {worst:.3} of the allowed", kernel.name);
    }
    failures
}

fn check_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for layout in ["NN", "NT", "TN", "TT"] {
        for m in [1, 3, 5, 17, 63, 65] {
            for n in [1, 4, 5, 17, 65] {
                for k in [0, 1, 3, 17, 65] {
                    cases.push(Case::dense([1, 1], [m, n, k], layout));
                }
            }
        }
        for mnk in
            [[4, 4, 4], [8, 32, 16], [12, 20, 8], [128, 128, 32], [132, 140, 36], [5, 36, 12], [68, 4, 64], [4, 68, 0]]
        {
            cases.push(Case::dense([1, 1], mnk, layout));
            cases.push(Case::dense([2, 3], mnk, layout).with_offsets(8, 4, 12));
            let mut case = Case::dense([2, 3], mnk, layout).with_offsets(3, 1, 7);
            cases.push(case.clone());
            // Broadcasts: A over the outer batch, B over the inner one.
            case.u.a_batch0 = 0;
            case.u.b_batch1 = 0;
            (case.u.a_offset, case.u.b_offset, case.u.c_offset) = (0, 4, 0);
            cases.push(Case::new(format!("{} broadcast", case.name), case.u, case.a_transposed, case.b_transposed));
        }
        cases.push(Case::dense([1, 1], [70_000, 1, 1], layout));
        cases.push(Case::dense([1, 1], [1, 70_000, 2], layout));
        cases.push(Case::dense([1, 1], [70_000, 4, 4], layout));
        cases.push(Case::dense([300, 300], [1, 1, 3], layout));
        cases.push(Case::dense([300, 300], [4, 4, 4], layout));
    }
    cases.push(Case::dense([1, 1], [4097, 4096, 1], "NN"));
    cases.push(Case::dense([1, 1], [4096, 4100, 4], "NN"));
    cases.push(attention("qk", 3, 24, 4, 16));
    cases.push(attention("pv", 3, 24, 4, 16));
    cases.push(attention("dv", 3, 24, 4, 16));
    cases
}

/// Attention products on `[B, T, H, D]` tensors without a copy: `qk` is
/// `Q x K^T`, `pv` is `P x V`, `dv` is `P^T x dO`, with P of `[B, H, T, T]`.
fn attention(what: &str, batch: u32, time: u32, heads: u32, width: u32) -> Case {
    let model = heads * width;
    let square = time * time;
    let mut u = Uniforms { batch0: batch, batch1: heads, m: time, n: width, k: time, ..Uniforms::default() };
    let mut b_transposed = false;
    let mut a_transposed = false;
    if what == "qk" {
        (u.n, u.k) = (time, width);
        b_transposed = true;
        (u.a_batch0, u.a_batch1, u.a_row, u.a_col) = (time * model, width, model, 1);
        (u.b_batch0, u.b_batch1, u.b_row, u.b_col) = (time * model, width, 1, model);
        (u.c_batch0, u.c_batch1, u.c_row) = (heads * square, square, time);
    } else {
        (u.a_batch0, u.a_batch1, u.a_row, u.a_col) = (heads * square, square, time, 1);
        (u.b_batch0, u.b_batch1, u.b_row, u.b_col) = (time * model, width, model, 1);
        (u.c_batch0, u.c_batch1, u.c_row) = (time * model, width, model);
        if what == "dv" {
            a_transposed = true;
            (u.a_row, u.a_col) = (1, time);
        }
    }
    let name = format!("{batch}x{heads} [{}, {}] x [{}, {}] attention {what}", u.m, u.k, u.k, u.n);
    Case::new(name, u, a_transposed, b_transposed)
}

fn time_cases() -> Vec<Case> {
    let dense = |mnk, layout| Case::dense([1, 1], mnk, layout);
    let mut cases = Vec::new();
    for size in [256, 512, 1024] {
        for layout in ["NN", "NT", "TN"] {
            cases.push(dense([size; 3], layout));
        }
    }
    cases.push(dense([512; 3], "TT"));
    cases.push(dense([1024, 512, 128], "NT"));
    cases.push(dense([1024, 128, 512], "NT"));
    cases.push(dense([1024, 128, 512], "NN"));
    cases.push(dense([512, 128, 1024], "TN"));
    cases.push(attention("qk", 8, 128, 4, 32));
    cases.push(attention("pv", 8, 128, 4, 32));
    cases.push(attention("dv", 8, 128, 4, 32));
    cases.push(dense([2048, 1024, 256], "NT"));
    cases.push(dense([8, 4096, 1024], "NT"));
    cases.push(dense([4096, 1024, 8], "TN"));
    cases.push(dense([64, 4096, 1024], "NT"));
    cases.push(dense([1024, 65, 128], "NT"));
    cases.push(dense([1024, 10, 784], "NT"));
    cases.push(dense([4096, 1, 1024], "NN"));
    cases
}

fn time(gpu: &Gpu, kernels: &[Kernel], cases: &[Case]) {
    println!(
        "\n{:<44} {:<22} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8}",
        "case", "kernel", "compile", "ms", "GFLOP/s", "best", "GF/cpu-s", "GB/s"
    );
    for case in cases {
        for kernel in kernels.iter().filter(|kernel| kernel.takes(case)) {
            let a = random(1, case.a_len);
            let b = random(2, case.b_len);
            let c = vec![0.0; case.c_len];
            let bound = gpu.bind(&case.u, &a, &b, &c);
            gpu.wait();
            let grid = kernel.grid(&case.u);
            let start = cpu_seconds();
            let pipeline = gpu.pipeline(kernel, case);
            gpu.run(&pipeline, &bound, grid, 1);
            let first = cpu_seconds();
            let once = gpu.run(&pipeline, &bound, grid, 1);
            // What the first run cost more than the second: compiling.
            let compile = 2.0 * first - start - cpu_seconds();
            let times = ((0.03 / once) as usize).clamp(1, 200);
            let cpu_start = cpu_seconds();
            let mut runs: Vec<f64> =
                (0..RUNS).map(|_| gpu.run(&pipeline, &bound, grid, times) / times as f64).collect();
            let cpu = cpu_seconds() - cpu_start;
            runs.sort_by(f64::total_cmp);
            let median = runs[RUNS / 2];
            let bytes = 4.0 * (case.a_len + case.b_len + case.c_len) as f64;
            println!(
                "{:<44} {:<22} {:>9.1} {:>9.3} {:>8.1} {:>8.1} {:>8.1} {:>8.1}",
                case.name,
                kernel.name,
                1e3 * compile,
                1e3 * median,
                case.flops() / median / 1e9,
                case.flops() / runs[0] / 1e9,
                case.flops() * (times * RUNS) as f64 / cpu / 1e9,
                bytes / median / 1e9,
            );
        }
    }
}

fn kernels() -> Vec<Kernel> {
    vec![
        Kernel::scalar(1, 1, 16),
        Kernel::scalar(4, 1, 16),
        Kernel::scalar(4, 4, 16),
        Kernel::scalar(8, 8, 16),
        Kernel::tiled(1),
        Kernel::tiled(2),
        Kernel::register(1, 2, 4, 16),
        Kernel::register(2, 4, 4, 16),
    ]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let has = |word: &str| words.iter().any(|w| w == word);
    let filters: Vec<&String> = words.iter().filter(|w| *w != "check" && *w != "time").collect();
    let case_filters: Vec<&str> = filters.iter().filter_map(|w| w.strip_prefix("case=")).collect();
    let kernel_filters: Vec<&str> = filters.iter().filter_map(|w| w.strip_prefix("kernel=")).collect();
    let keep = |name: &str, filters: &[&str]| filters.is_empty() || filters.iter().any(|f| name.contains(f));

    let gpu = Gpu::new()?;
    let kernels: Vec<Kernel> = kernels().into_iter().filter(|k| keep(&k.name, &kernel_filters)).collect();
    let mut failures = 0;
    if !has("time") {
        let cases: Vec<Case> = check_cases().into_iter().filter(|c| keep(&c.name, &case_filters)).collect();
        failures = check(&gpu, &kernels, &cases);
    }
    if !has("check") {
        let cases: Vec<Case> = time_cases().into_iter().filter(|c| keep(&c.name, &case_filters)).collect();
        time(&gpu, &kernels, &cases);
    }
    if failures > 0 {
        return Err(format!("{failures} checks failed").into());
    }
    Ok(())
}
