//! One more token of a text: all tokens anew, against a cache of keys and values.
//!
//! `cargo bench --bench generation` prints, for a context of 128 and of 512, the median
//! of interleaved runs in milliseconds, after checking that both agree to 1e-5.

use std::time::Instant;

use remat::checkpoint::Policy;
use remat::gpu::Gpu;
use remat::nn::{Gpt, GptConfig, Module};
use remat::params::Params;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const RUNS: usize = 15;
const VOCABULARY: usize = 256;

fn main() -> Outcome<()> {
    let gpu = Gpu::builder().build_blocking()?;
    println!("{}; 4 layers, width 128, 4 heads", gpu.adapter_name());
    println!("{:>8} {:>14} {:>14} {:>8}", "context", "all anew, ms", "cached, ms", "ratio");
    for context in [128, 512] {
        let params = Params::new(&gpu, 1);
        let model = Gpt::new(&params, &GptConfig::new(VOCABULARY, context, 128, 4, 4))?.eval();
        let cache = model.cache(&params, "cache", 1)?;
        let ids: Vec<i32> = (0..context as i32).map(|i| (i * 37 + 11) % VOCABULARY as i32).collect();
        let full = gpu.step_blocking(Policy::None, |g| model.forward(&g.input::<i32>("ids", [1, context])?))?;
        let prompt = gpu.step_blocking(Policy::None, |g| {
            model.decode(&g.input::<i32>("ids", [1, context - 1])?, &cache)?.sum_all()
        })?;
        let one = gpu.step_blocking(Policy::None, |g| model.decode(&g.input::<i32>("ids", [1, 1])?, &cache))?;
        let length = context as u32 - 1;
        prompt.run_blocking(&[("ids", (&ids[..context - 1]).into())])?.item_blocking::<f32>()?;

        let (mut anew, mut cached) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            // The same place again and again: the last of the context.
            params.write_blocking("cache.length", &[length])?;
            let start = Instant::now();
            let all: Vec<f32> = full.run_blocking(&[("ids", (&ids).into())])?.read_blocking()?;
            anew.push(start.elapsed().as_secs_f64() * 1e3);
            let start = Instant::now();
            let last: Vec<f32> = one.run_blocking(&[("ids", (&ids[context - 1..]).into())])?.read_blocking()?;
            cached.push(start.elapsed().as_secs_f64() * 1e3);
            let far =
                all[(context - 1) * VOCABULARY..].iter().zip(&last).fold(0.0_f32, |m, (a, b)| m.max((a - b).abs()));
            if far > 1e-5 {
                return Err(format!("logits differ by {far}").into());
            }
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[RUNS / 2]
        };
        let (anew, cached) = (median(&mut anew), median(&mut cached));
        println!("{context:>8} {anew:>14.2} {cached:>14.2} {:>8.1}", anew / cached);
    }
    Ok(())
}
