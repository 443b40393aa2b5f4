mod duplicates;
mod env;
mod model;
mod properties;
mod rules;
