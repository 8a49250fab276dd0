//! Time of the processor, comparable while other programs run.

/// CPU seconds of all threads of this process where Linux tells, else NaN. On a CPU
/// adapter, flops per CPU second stay comparable while other programs are running.
pub(crate) fn cpu_seconds() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return f64::NAN;
    };
    let nanoseconds = |task: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks.flatten().filter_map(nanoseconds).sum::<f64>() / 1e9
}
