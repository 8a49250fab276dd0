//! The browser build of `remat`.
