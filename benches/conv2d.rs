//! Convolution and its two gradients, timed at the sizes of small image models.
//!
//! `cargo bench --bench conv2d` times all cases; words after `--` keep those whose
//! names contain one of them. To compare two trees, build this in both and run the
//! two programs in turn.
//!
//! Columns: `first` milliseconds of the first run, with the compilation of its
//! shaders (Mesa caches them on disk: set `MESA_SHADER_CACHE_DISABLE=1` to see a
//! cold start); `ms` the median run; `GF/cpu-s` gigaflops per CPU second of the
//! process, comparable while other programs run.

use std::error::Error;
use std::time::Instant;

use remat::checkpoint::Policy;
use remat::gpu::Gpu;
use remat::graph::{Recorder, Tensor};
use remat::ops::Conv2dOptions;
use remat::params::{Init, Param, Params};

const RUNS: usize = 9;

/// A convolution: batch, channels in and out, side of the image, of the kernel, stride.
struct Case {
    batch: usize,
    channels: [usize; 2],
    side: usize,
    kernel: usize,
    stride: usize,
}

const CASES: [Case; 8] = [
    Case { batch: 4, channels: [1, 8], side: 128, kernel: 3, stride: 1 },
    Case { batch: 4, channels: [8, 8], side: 128, kernel: 3, stride: 1 },
    Case { batch: 4, channels: [16, 8], side: 128, kernel: 3, stride: 1 },
    Case { batch: 4, channels: [16, 16], side: 64, kernel: 3, stride: 1 },
    Case { batch: 4, channels: [64, 64], side: 16, kernel: 3, stride: 1 },
    Case { batch: 64, channels: [16, 16], side: 8, kernel: 3, stride: 1 },
    Case { batch: 64, channels: [16, 32], side: 8, kernel: 3, stride: 2 },
    Case { batch: 4, channels: [32, 64], side: 32, kernel: 1, stride: 1 },
];

impl Case {
    fn name(&self) -> String {
        let Self { batch, channels: [ins, outs], side, kernel, stride } = self;
        format!("[{batch},{ins},{side},{side}]->{outs} {kernel}x{kernel}/{stride}")
    }

    fn out_side(&self) -> usize {
        (self.side + 2 * (self.kernel / 2) - self.kernel) / self.stride + 1
    }

    fn flops(&self) -> f64 {
        let out = self.out_side();
        let [ins, outs] = self.channels;
        2.0 * (self.batch * ins * outs * out * out * self.kernel * self.kernel) as f64
    }
}

/// CPU seconds of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in brackets: utime and stime are the 12th and 13th fields, in hundredths.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / 100.0
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let gpu = Gpu::new_blocking()?;
    println!("{}\n{:<32} {:>8} {:>9} {:>9} {:>9}", gpu.adapter_name(), "", "", "first", "ms", "GF/cpu-s");
    for (index, case) in CASES.iter().enumerate() {
        for what in ["y", "dx", "dw"] {
            let name = format!("{} {what}", case.name());
            if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
                time(&gpu, case, index, what)?;
            }
        }
    }
    Ok(())
}

fn time(gpu: &Gpu, case: &Case, index: usize, what: &str) -> Result<(), Box<dyn Error>> {
    let params = Params::new(gpu, index as u64);
    let [ins, outs] = case.channels;
    let random = || Init::Uniform { low: -1.0, high: 1.0 };
    let x = params.create("x", [case.batch, ins, case.side, case.side], random())?;
    let w = params.create("w", [outs, ins, case.kernel, case.kernel], random())?;
    let h = params.create("h", [case.batch, outs, case.out_side(), case.out_side()], random())?;
    let start = Instant::now();
    let step = gpu.step_blocking(Policy::None, |g| computed(g, case, what, [&x, &w, &h]))?;
    let mut times = Vec::new();
    let (mut first, mut cpu, mut runs) = (0.0, 0.0, 0);
    while times.len() < RUNS || cpu < 0.3 {
        let (begin, before) = (Instant::now(), cpu_seconds());
        step.run_blocking(&[])?.read_blocking::<f32>()?;
        if first == 0.0 {
            first = start.elapsed().as_secs_f64() * 1e3;
            continue;
        }
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        cpu += cpu_seconds() - before;
        runs += 1;
    }
    times.sort_by(f64::total_cmp);
    let rate = case.flops() * f64::from(runs) / cpu / 1e9;
    println!("{:<32} {what:>8} {first:>9.1} {:>9.2} {rate:>9.2}", case.name(), times[times.len() / 2]);
    Ok(())
}

/// One element of what is timed; the rest of a convolution is dead code.
fn computed(g: &Recorder, case: &Case, what: &str, [x, w, h]: [&Param; 3]) -> remat::Result<Tensor> {
    let [x, w, h] = [g.param(x)?, g.param(w)?, g.param(h)?];
    let y = x.conv2d(&w, None, Conv2dOptions::new(case.stride, case.kernel / 2))?;
    let wanted = match what {
        "y" => y,
        "dx" => g.gradients(&y.mul(&h)?.sum_all()?, &[&x])?.swap_remove(0),
        _ => g.gradients(&y.mul(&h)?.sum_all()?, &[&w])?.swap_remove(0),
    };
    wanted.narrow(0, 0, 1)?.narrow(1, 0, 1)?.narrow(2, 0, 1)?.narrow(3, 0, 1)
}
