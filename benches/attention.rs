//! Attention by kernels against attention as products and a softmax, forward and
//! backward, and the planned activation peaks.
//!
//! ```text
//! cargo bench --bench attention                  # everything
//! cargo bench --bench attention -- T=512         # cases whose name has this
//! ```
//!
//! Both variants run in turn, so that what else the machine does falls on both: the
//! medians of their times are printed, their ratio, and that of the processor's time,
//! which on a software adapter is comparable while other programs run.

#[path = "common/cpu.rs"]
mod cpu;

use std::time::Instant;

use cpu::cpu_seconds;
use remat::checkpoint::Policy;
use remat::gpu::{Gpu, InputData};
use remat::graph::{Recorder, Tensor};
use remat::ops::AttentionOptions;
use remat::step::Step;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Sizes of a case: batch, query heads, heads of keys and values, length, width.
struct Case {
    sizes: [usize; 5],
    causal: bool,
    runs: usize,
}

impl Case {
    fn name(&self) -> String {
        let [b, h, hk, t, d] = self.sizes;
        let causal = if self.causal { " causal" } else { "" };
        format!("B={b} H={h} HK={hk} T={t} D={d}{causal}")
    }

    /// Heads as a model has them, views of `[B, T, H * D]`; the loss, and with
    /// `backward` the gradients of q, k and v as the projections would read them.
    fn record(&self, g: &Recorder, fused: bool, backward: bool) -> remat::Result<Vec<Tensor>> {
        let [b, h, hk, t, d] = self.sizes;
        let leaves = [("q", h), ("k", hk), ("v", hk)].map(|(n, h)| Ok((g.input::<f32>(n, [b, t, h * d])?, h)));
        let leaves: Vec<(Tensor, usize)> = leaves.into_iter().collect::<remat::Result<_>>()?;
        let views: Vec<Tensor> = leaves
            .iter()
            .map(|(x, h)| x.reshape([b, t, *h, d])?.permute(&[0, 2, 1, 3]))
            .collect::<remat::Result<_>>()?;
        let options = AttentionOptions { causal: self.causal, ..AttentionOptions::default() };
        let y = if fused {
            views[0].attention_fused(&views[1], &views[2], options)?
        } else {
            views[0].attention_composed(&views[1], &views[2], options)?
        };
        let loss = y.permute(&[0, 2, 1, 3])?.reshape([b, t, h * d])?.sqr()?.sum_all()?;
        if !backward {
            return Ok(vec![loss]);
        }
        let wrt: Vec<&Tensor> = leaves.iter().map(|(x, _)| x).collect();
        let mut all = vec![loss];
        for gradient in g.gradients(&all[0], &wrt)? {
            all.push(gradient.sum_all()?);
        }
        Ok(all)
    }

    fn measure(&self, gpu: &Gpu) -> Outcome<()> {
        let [b, h, hk, t, d] = self.sizes;
        let noise = |n: usize| -> Vec<f32> { (0..n).map(|i| ((i * 7919 % 997) as f32) / 498.5 - 1.0).collect() };
        let data = [noise(b * t * h * d), noise(b * t * hk * d), noise(b * t * hk * d)];
        let inputs: Vec<(&str, InputData<'_>)> =
            ["q", "k", "v"].into_iter().zip(&data).map(|(n, x)| (n, x.into())).collect();
        for (what, backward) in [("forward", false), ("forward and backward", true)] {
            let steps: Vec<Step<Vec<Tensor>>> = [false, true]
                .into_iter()
                .map(|fused| gpu.step_blocking(Policy::None, |g| self.record(g, fused, backward)))
                .collect::<remat::Result<_>>()?;
            let peaks: Vec<u64> = steps.iter().map(|s| s.plan().activation_peak_bytes).collect();
            let (mut times, mut cpu) = ([Vec::new(), Vec::new()], [0.0, 0.0]);
            // The first turn compiles.
            for turn in 0..=self.runs {
                for ((step, times), cpu) in steps.iter().zip(&mut times).zip(&mut cpu) {
                    let (begun, cpu_begun) = (Instant::now(), cpu_seconds());
                    step.run_blocking(&inputs)?[0].item_blocking::<f32>()?;
                    if turn > 0 {
                        times.push(begun.elapsed().as_secs_f64() * 1e3);
                        *cpu += cpu_seconds() - cpu_begun;
                    }
                }
            }
            let [composed, fused] = times.map(|mut list| {
                list.sort_by(f64::total_cmp);
                list[list.len() / 2]
            });
            println!(
                "{:<36} {what:<21} composed {composed:8.2} ms {:8.2} MB   fused {fused:8.2} ms {:8.2} MB   {:.2}, of cpu time {:.2}",
                self.name(),
                peaks[0] as f64 / 1e6,
                peaks[1] as f64 / 1e6,
                fused / composed,
                cpu[1] / cpu[0],
            );
        }
        Ok(())
    }
}

fn main() -> Outcome<()> {
    let filters: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let gpu = Gpu::new_blocking()?;
    println!("adapter: {}", gpu.adapter_name());
    let case = |sizes, causal, runs| Case { sizes, causal, runs };
    let cases = [
        case([8, 4, 4, 128, 32], true, 15),
        case([8, 4, 4, 128, 32], false, 15),
        case([4, 8, 8, 128, 64], true, 15),
        case([2, 8, 8, 512, 32], true, 9),
        case([1, 8, 8, 512, 64], true, 9),
        case([1, 8, 2, 512, 64], true, 9),
        case([1, 8, 8, 1024, 32], true, 5),
        case([1, 8, 8, 1024, 64], true, 5),
        case([1, 4, 4, 1024, 128], true, 5),
        case([1, 8, 8, 512, 64], false, 9),
        case([1, 4, 4, 512, 128], false, 9),
    ];
    for case in cases {
        if filters.is_empty() || filters.iter().any(|f| case.name().contains(f)) {
            case.measure(&gpu)?;
        }
    }
    Ok(())
}
