//! names: as names.c, for Rust's Mutex.
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

struct Cache {
    hits: u64,
    stored: u64,
}

#[inline(never)]
fn cache_get(cache: &Mutex<Cache>) {
    let mut c = cache.lock().unwrap();
    c.hits += 1;
    thread::sleep(Duration::from_micros(300));
}

#[inline(never)]
fn cache_put(cache: &Mutex<Cache>) {
    let mut c = cache.lock().unwrap();
    c.stored += 1;
    thread::sleep(Duration::from_micros(300));
}

fn main() {
    let cache = Arc::new(Mutex::new(Cache { hits: 0, stored: 0 }));
    let threads: Vec<_> = (0..4)
        .map(|k| {
            let cache = cache.clone();
            thread::spawn(move || {
                for i in 0..60 {
                    if (i + k) % 16 != 15 {
                        cache_get(&cache)
                    } else {
                        cache_put(&cache)
                    }
                    thread::sleep(Duration::from_micros(100)); // as names.c
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    let c = cache.lock().unwrap();
    assert_eq!(c.hits + c.stored, 240);
}
