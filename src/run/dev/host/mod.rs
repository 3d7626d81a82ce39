mod answer;
mod fit;
mod scheduler;
mod topology;
mod volume;
mod workloads;
