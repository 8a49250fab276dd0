//! The stages of `cargo xtask test`: their order, what they need and what they do.

use clap::ValueEnum;

use crate::prepare::Need;

/// The tests of the second, shorter run: with the adapter's own limits and
/// without poisoned memory, each a test binary of `tests/` and a filter on the
/// names in it (empty for all). This is the only place where they are listed.
pub(crate) const ADAPTER_TESTS: &[(&str, &str)] =
    &[("training", ""), ("bit_equal", ""), ("memory", ""), ("cases_numbers", ""), ("reference_ops", "")];

/// A stage, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Stage {
    /// The sources are formatted
    Fmt,
    /// No lint has anything to say
    Clippy,
    /// ... nor about the code that is compiled for browsers
    ClippyWasm,
    /// The documentation is complete and its links lead somewhere
    Doc,
    /// All native tests, with WebGPU's default limits and poisoned memory
    Native,
    /// Some of them again, with the adapter's limits and without poison
    NativeAdapter,
    /// The examples compile
    Examples,
    /// The browser module and its pages are built
    Wasm,
    /// The page's checks in Chromium
    Chromium,
    /// The page's checks in Firefox
    Firefox,
}

impl Stage {
    /// The name, as typed after `--only`.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What it needs of the machine.
    pub(crate) fn needs(self) -> &'static [Need] {
        match self {
            Self::Fmt | Self::Clippy => &[Need::Lints],
            Self::ClippyWasm => &[Need::Lints, Need::Wasm],
            Self::Doc | Self::Examples => &[],
            Self::Native | Self::NativeAdapter => &[Need::Vulkan],
            Self::Wasm => &[Need::Wasm],
            Self::Chromium => &[Need::Chromium],
            Self::Firefox => &[Need::Firefox, Need::Vulkan],
        }
    }

    /// The stage whose result it uses.
    pub(crate) fn after(self) -> Option<Self> {
        matches!(self, Self::Chromium | Self::Firefox).then_some(Self::Wasm)
    }
}

/// The stages asked for and those that they depend on, in order; all, if none was asked for.
pub(crate) fn chosen(only: &[Stage]) -> Vec<Stage> {
    let wanted =
        |stage: &Stage| only.is_empty() || only.iter().any(|asked| asked == stage || asked.after() == Some(*stage));
    Stage::value_variants().iter().copied().filter(wanted).collect()
}

/// What all chosen stages need, each once.
pub(crate) fn needs(stages: &[Stage]) -> Vec<Need> {
    let mut needs: Vec<Need> = stages.iter().flat_map(|stage| stage.needs()).copied().collect();
    needs.sort_unstable();
    needs.dedup();
    needs
}

/// Prints the stages.
pub(crate) fn list() {
    for value in Stage::value_variants().iter().filter_map(ValueEnum::to_possible_value) {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        println!("{:16}{help}", value.get_name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_brings_the_module_along() {
        assert_eq!(chosen(&[Stage::Firefox]), [Stage::Wasm, Stage::Firefox]);
        assert_eq!(chosen(&[]).len(), Stage::value_variants().len());
        assert_eq!(needs(&[Stage::Fmt, Stage::Clippy]), [Need::Lints]);
    }
}
