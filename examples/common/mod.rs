//! What the example programs share: their lines of output, timing, data.
#![allow(dead_code, reason = "each program uses its own part")]

pub(crate) mod measure;
pub(crate) mod picture;
pub(crate) mod text;
pub(crate) mod vision;
pub(crate) mod workload;

/// What an example returns: any error, printed by `main`.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Ends a program: an error is printed as a person reads it.
pub(crate) fn end(outcome: Outcome<()>) -> std::process::ExitCode {
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// The median of some numbers; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Bytes as MB with one decimal (10^6 bytes).
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
