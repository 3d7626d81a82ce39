//! The chart: what it renders, and what it installs on real clusters, in containers and with no right too many.

mod alerts;
mod assigned;
mod bundle;
mod chart;
mod dashboard;
mod demo;
mod examples;
pub mod helm;
mod moves;
mod placement;
mod program;
pub mod readme;
pub mod release;
mod rights;
mod slips;
mod story;
mod ui;
mod upgrade;
mod values;
mod verify;
mod volumes;
