//! Bytes: what plans promise, what the device holds, that nothing grows.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

mod common;

use common::models::{Net, least_budget, policies, resident_bytes, shared_gpu};
use remat::checkpoint::{ByteSize, Policy};
use remat::error::Error;
use remat::gpu::{BufferCategory, Gpu, Inject, InputData};
use remat::graph::Tensor;
use remat::nn::GptConfig;
use remat::optim::{AdamW, AdamWConfig};
use remat::params::Params;
use remat::plan::Plan;
use remat::profile::{AdapterClass, DeviceProfile};
use remat::step::{RecordedStep, Step};

type Recorded = RecordedStep<(Tensor, Tensor)>;

/// A training step with AdamW, recorded without a device.
fn recorded(make: impl FnOnce(&Params) -> Net) -> Recorded {
    let params = Params::offline(0);
    let net = make(&params);
    let optimizer = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let profile = DeviceProfile::webgpu_defaults(AdapterClass::Cpu);
    RecordedStep::new(&profile, |g| net.train(g, &optimizer)).unwrap()
}

fn recorded_mlp(width: usize, hidden: usize, blocks: usize, batch: usize) -> Recorded {
    recorded(|params| Net::mlp(params, [width, hidden, blocks, batch], 0.0))
}

/// Width 128, context 128, batch 8, 4 heads.
fn recorded_text(vocabulary: usize, layers: usize) -> Recorded {
    recorded(|params| Net::gpt(params, &GptConfig::new(vocabulary, 128, 128, 4, layers), 8))
}

/// Prints where a plan's memory is at its peak.
fn show(recorded: &Recorded, plan: &Plan) {
    let timeline = plan.timeline(recorded.program());
    let most = timeline.iter().enumerate().max_by_key(|(_, live)| live.total()).unwrap();
    println!("  {}: {:?}", plan.policy, plan.peak);
    println!("  at dispatch {} of {}: {:?}", most.0, timeline.len(), most.1);
}

/// Activation peak under segments over that under none.
fn activation_share(what: &str, recorded: &Recorded, at_most: f64) {
    let none = recorded.plan(&Policy::None).unwrap();
    let segments = recorded.plan(&Policy::Segments).unwrap();
    let share = segments.activation_peak_bytes as f64 / none.activation_peak_bytes as f64;
    println!(
        "{what}: activation peak {} under none, {} under segments: {share:.4} (at most {at_most})",
        none.activation_peak_bytes, segments.activation_peak_bytes
    );
    show(recorded, &none);
    show(recorded, &segments);
    assert!(share <= at_most, "{what}: {share}");
}

#[test]
fn segments_take_two_fifths_of_a_wide_mlp() {
    activation_share("8 blocks 1024 -> 4096, batch 512", &recorded_mlp(1024, 4096, 8, 512), 0.40);
}

#[test]
fn segments_take_a_quarter_of_a_deep_mlp() {
    activation_share("32 blocks 256 -> 1024, batch 2048", &recorded_mlp(256, 1024, 32, 2048), 0.25);
}

#[test]
fn segments_take_a_quarter_of_a_text_model() {
    activation_share("12 layers, width 128", &recorded_text(96, 12), 0.25);
}

/// PyTorch's peak of the same step, which frees each value as early as its
/// reference counts allow.
fn no_more_than_pytorch(what: &str, recorded: &Recorded, pytorch: f64) {
    let none = recorded.plan(&Policy::None).unwrap();
    let share = none.peak.total() as f64 / pytorch;
    println!("{what}: planned peak of none {}, {share:.4} of PyTorch's", none.peak.total());
    show(recorded, &none);
    assert!(share <= 1.05, "{what}: {share}");
}

#[test]
fn none_is_no_straw_man_on_an_mlp() {
    no_more_than_pytorch("8 blocks 256 -> 1024, batch 2048", &recorded_mlp(256, 1024, 8, 2048), 158.5e6);
}

#[test]
fn none_is_no_straw_man_on_a_text_model() {
    no_more_than_pytorch("4 layers, width 128, vocabulary 256", &recorded_text(256, 4), 57.9e6);
}

/// Longer groups keep fewer boundaries but replay more at once; where interiors
/// are four times their boundary, each step from none to every segment pays.
#[test]
fn peaks_fall_with_shorter_groups() {
    // The text model's attention and feed-forward part are far more than four times the boundary.
    for (what, recorded) in [("mlp", recorded_mlp(128, 512, 8, 1024)), ("gpt", recorded_text(96, 8))] {
        let policies = [Policy::Every(1), Policy::Every(2), Policy::Every(4), Policy::None];
        let peaks: Vec<u64> = policies.iter().map(|p| recorded.plan(p).unwrap().peak.total()).collect();
        println!("{what}: every:1, 2, 4 and none peak at {peaks:?}");
        assert!(peaks.windows(2).all(|pair| pair[0] <= pair[1]), "{what}: {peaks:?}");
        assert!(peaks[0] < peaks[3], "{what}: nothing is saved");
    }
}

#[test]
fn budgets_are_kept_or_refused_with_the_least() {
    for (what, recorded) in [("mlp", recorded_mlp(128, 512, 6, 1024)), ("gpt", recorded_text(96, 4))] {
        let none = recorded.plan(&Policy::None).unwrap();
        let least = least_budget(&recorded);
        assert!(least < none.peak.total());
        let refused = recorded.plan(&Policy::Budget(ByteSize::new(least - 1))).unwrap_err();
        let expected = Error::BudgetTooSmall { budget_bytes: least - 1, least_budget_bytes: least };
        assert_eq!(refused, expected);
        let mut cost = f64::INFINITY;
        for tenths in 0..=10 {
            let budget = least + (none.peak.total() - least) * tenths / 10;
            let plan = recorded.plan(&Policy::Budget(ByteSize::new(budget))).unwrap();
            println!("{what}: budget {budget}, peak {}, {} replays", plan.peak.total(), plan.replayed_passes);
            assert!(plan.peak.total() <= budget, "{what}: {} for a budget of {budget}", plan.peak.total());
            assert!(plan.cost_ns <= cost, "{what}: a larger budget gives a dearer plan");
            cost = plan.cost_ns;
        }
        assert_eq!(cost, none.cost_ns, "{what}: with none's budget nothing is replayed");
    }
}

/// A small model on the device.
fn on_device(gpu: &Gpu, text: bool) -> (Params, Net, AdamW) {
    let params = Params::new(gpu, 5);
    let net = if text {
        Net::gpt(&params, &GptConfig { dropout: 0.1, ..GptConfig::new(31, 16, 32, 4, 4) }, 4)
    } else {
        Net::mlp(&params, [32, 128, 6, 64], 0.1)
    };
    let optimizer = AdamW::new(&params, AdamWConfig::default()).unwrap();
    (params, net, optimizer)
}

fn inputs(net: &Net, index: u32) -> Vec<(&'static str, InputData<'static>)> {
    let [x, y] = net.batch(index);
    vec![x, y, ("lr", 1e-3_f32.into()), ("step", index.into()), ("seed", 9_u32.into())]
}

/// Runs step number `index` and waits for its loss.
fn run(step: &Step<(Tensor, Tensor)>, net: &Net, index: u32) -> f32 {
    let (loss, _) = step.run_blocking(&inputs(net, index)).unwrap();
    let loss = loss.item_blocking::<f32>().unwrap();
    assert!(loss.is_finite());
    loss
}

#[test]
fn measured_planned_living_and_allocated_bytes_agree_under_every_policy() {
    let (_turn, gpu) = shared_gpu();
    for text in [false, true] {
        let all = {
            let (_params, net, optimizer) = on_device(&gpu, text);
            policies(&RecordedStep::new(gpu.profile(), |g| net.train(g, &optimizer)).unwrap())
        };
        for policy in all {
            gpu.wait_idle_blocking().unwrap();
            assert_eq!(gpu.memory().total.reserved_bytes, 0, "nothing is left of the step before");
            // The only state and the only step of this device.
            let (params, net, optimizer) = on_device(&gpu, text);
            let step = gpu.step_blocking(policy.clone(), |g| net.train(g, &optimizer)).unwrap();
            for index in 0..3 {
                run(&step, &net, index);
            }
            let planned = step.plan().peak.total();
            gpu.wait_idle_blocking().unwrap();
            let memory = gpu.memory();
            let allocated = gpu.allocator_bytes();
            println!(
                "text {text} under {policy}: planned {planned}, measured {}, living {}, at the most {}, \
                 allocated {allocated:?} in {} buffers",
                step.measured_peak_bytes(),
                memory.total.live_bytes,
                memory.total.peak_bytes,
                memory.total.buffers
            );
            assert_eq!(step.measured_peak_bytes(), planned, "{policy}");
            assert_eq!(memory.total.live_bytes, planned, "{policy}");
            assert_eq!(memory.of(BufferCategory::State).live_bytes, step.plan().peak.state, "{policy}");
            // The report counts the padding before an allocation to it.
            if let Some(allocated) = allocated {
                let most = planned + 64 * memory.total.buffers;
                assert!((planned..most).contains(&allocated), "{policy}: {allocated} allocated, {planned} planned");
            }
            drop((step, params, net, optimizer));
        }
    }
}

#[test]
fn budgets_hold_on_the_device() {
    let (_turn, gpu) = shared_gpu();
    let (_params, net, optimizer) = on_device(&gpu, false);
    let recorded = RecordedStep::new(gpu.profile(), |g| net.train(g, &optimizer)).unwrap();
    let (least, none) = (least_budget(&recorded), recorded.plan(&Policy::None).unwrap().peak.total());
    let before = gpu.memory();
    let refused =
        gpu.step_blocking(Policy::Budget(ByteSize::new(least - 1)), |g| net.train(g, &optimizer)).unwrap_err();
    assert_eq!(refused, Error::BudgetTooSmall { budget_bytes: least - 1, least_budget_bytes: least });
    assert!(refused.to_string().contains(&least.to_string()), "{refused}");
    assert_eq!(gpu.memory(), before, "refused before anything is allocated");
    for budget in [least, least.midpoint(none), none] {
        let step = gpu.step_blocking(Policy::Budget(ByteSize::new(budget)), |g| net.train(g, &optimizer)).unwrap();
        run(&step, &net, 0);
        println!("budget {budget}: measured {}", step.measured_peak_bytes());
        assert!(step.measured_peak_bytes() <= budget);
    }
}

#[test]
fn live_bytes_are_constant_over_steps_and_failed_runs() {
    let (_turn, gpu) = shared_gpu();
    for text in [false, true] {
        let (_params, net, optimizer) = on_device(&gpu, text);
        let step = gpu.step_blocking(Policy::Segments, |g| net.train(g, &optimizer)).unwrap();
        let mut last = run(&step, &net, 0);
        let live = gpu.memory();
        for index in 1..200 {
            last = run(&step, &net, index);
            assert_eq!(gpu.memory(), live, "after step {index}");
        }
        // Refused by the engine, and by the device.
        let complete = inputs(&net, 200);
        for missing in 0..complete.len() {
            let mut some = complete.clone();
            let (name, _) = some.remove(missing);
            let error = step.run_blocking(&some).unwrap_err();
            assert!(matches!(error, Error::MissingInput { .. }), "without {name}: {error}");
            some.push((name, vec![1_u32, 2, 3].into()));
            let error = step.run_blocking(&some).unwrap_err();
            assert!(matches!(error, Error::Data { .. }), "{name} of another type: {error}");
            assert_eq!(gpu.memory(), live, "after a run with a wrong {name}");
        }
        gpu.inject(Inject::ValidationError);
        assert!(matches!(step.run_blocking(&complete).unwrap_err(), Error::Validation { .. }));
        assert_eq!(gpu.memory(), live, "after a run that the device refused");
        let after = run(&step, &net, 200);
        assert_eq!(gpu.memory(), live);
        println!("text {text}: {} live bytes over 201 steps, loss {last} and then {after}", live.total.live_bytes);
    }
}

#[test]
fn ten_thousand_training_steps_grow_nothing() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    let net = Net::mlp(&params, [8, 16, 2, 4], 0.1);
    let optimizer = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let step = gpu.step_blocking(Policy::Segments, |g| net.train(g, &optimizer)).unwrap();
    let mut first = None;
    let mut train = |from: u32, to: u32| {
        for index in from..to {
            // One batch over and over; the loss is read now and then, as programs do.
            let mut inputs = inputs(&net, 0);
            inputs[3].1 = index.into();
            let (loss, _) = step.run_blocking(&inputs).unwrap();
            if index % 100 == 0 {
                let loss = loss.item_blocking::<f32>().unwrap();
                assert!(loss <= *first.get_or_insert(loss) * 1.5, "step {index}: {loss}");
            }
        }
        gpu.wait_idle_blocking().unwrap();
    };
    train(0, 1000);
    let (resident, live) = (resident_bytes(), gpu.memory());
    let begun = std::time::Instant::now();
    train(1000, 11_000);
    let grown = resident_bytes().saturating_sub(resident);
    println!("10,000 steps in {:?}: the process grew by {} KiB", begun.elapsed(), grown >> 10);
    assert_eq!(gpu.memory(), live);
    assert!(grown < 4 << 20, "the process grew by {grown} bytes");
}
