// Generic and inlined Rust, closures and traits, for both manglings.
use std::collections::HashMap;

trait Shape {
    fn area(&self) -> u64;
}
struct Square(u64);
struct Pair<T>(T, T);

impl Shape for Square {
    #[inline(never)]
    fn area(&self) -> u64 {
        self.0 * self.0
    }
}
impl<T: Into<u64> + Copy> Shape for Pair<T> {
    #[inline(never)]
    fn area(&self) -> u64 {
        let a: u64 = self.0.into();
        a * self.1.into()
    }
}

#[inline(always)]
fn inner(x: u64) -> u64 {
    if x == 77 {
        println!("seventy-seven");
    }
    x.wrapping_mul(31)
}

#[inline(never)]
pub fn count(n: u64) -> u64 {
    let mut m: HashMap<u64, Vec<u64>> = HashMap::new();
    for i in 0..n {
        m.entry(i % 5).or_default().push(inner(i));
    }
    m.values().map(|v| v.iter().sum::<u64>()).sum()
}

fn main() {
    let n = std::env::args().count() as u64;
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square(n)), Box::new(Pair(2u8, 3u8)), Box::new(Pair(n as u32, 4))];
    let total: u64 = shapes.iter().map(|s| s.area()).sum();
    println!("{}", total + count(n * 100));
}
