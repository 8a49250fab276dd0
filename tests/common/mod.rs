//! Pieces that several test binaries share.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod catalogue;
pub(crate) mod models;
pub(crate) mod naive;
