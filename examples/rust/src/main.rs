//! Classifies one image of a digit: 64 numbers from the standard input, dark is large.

mod network;

use std::io::{read_to_string, stdin};

fn main() {
    let text = read_to_string(stdin()).expect("the standard input cannot be read");
    let numbers: Result<Vec<f32>, _> = text.split_whitespace().map(str::parse).collect();
    let image: [f32; 64] = numbers.ok().and_then(|n| n.try_into().ok()).expect("64 numbers are needed");
    let mut session = network::Session::new().expect("no session");
    let probability = session.run(&image).expect("the run failed");
    let best = (0..10).max_by(|&a, &b| probability[a].total_cmp(&probability[b])).unwrap();
    println!("{best}");
}
