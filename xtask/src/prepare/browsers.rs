//! The two browsers that pages are tested in: two implementations of WebGPU and
//! two shader compilers.

use std::path::PathBuf;

use super::apt::Wanted;
use crate::paths::on_path;

/// A browser that can be run without a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Browser {
    /// Chromium: Dawn and Tint, on SwiftShader.
    Chromium,
    /// Firefox: wgpu and naga, on Mesa's software driver.
    Firefox,
}

impl Browser {
    /// Its name in lower case.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chromium => "chromium",
            Self::Firefox => "firefox",
        }
    }

    /// Its program, if it is installed.
    pub(crate) fn program(self) -> Option<PathBuf> {
        let names: &[&str] = match self {
            Self::Chromium => &["chromium", "chromium-browser", "google-chrome"],
            Self::Firefox => &["firefox-esr", "firefox"],
        };
        names.iter().find_map(|name| on_path(name))
    }

    /// The package that brings it, if it is not installed.
    pub(crate) fn missing(self) -> Option<Wanted> {
        if self.program().is_some() {
            return None;
        }
        let package = match self {
            Self::Chromium => "chromium",
            Self::Firefox => "firefox-esr",
        };
        Some(Wanted {
            packages: vec![package],
            why: format!("the tests run the engine in {}, which is not installed", self.name()),
        })
    }
}
